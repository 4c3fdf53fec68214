"""The record of a replayed dream: both states, both rewards, and the first difference."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from components.experience.real_replay import Replay, replay
from components.experience.replay_record import replay_record
from components.records import Trajectory

TREATMENTS = ("heat", "cool", "clean")


@pytest.fixture(scope="module")
def treated(played):
    """A successful expert episode with a treatment, such as "put a hot mug in desk", and the number of that
    step.
    """
    for episode in played["expert"]:
        number = next((step.step for step in episode.steps if step.action.split()[0] in TREATMENTS), None)
        if number is not None and episode.success:
            return episode, number
    raise AssertionError("no expert's episode treats anything")


def test_a_wrongly_granted_success_first_differs_at_its_reward(adapter, treated):
    """The expert's episode without the treatment: its states are real, the last reward is not."""
    episode, number = treated
    steps = [_untreated(step) for step in episode.steps if step.step != number]
    dreamed = Trajectory(
        episode.task,
        tuple(replace(step, step=place, reasoning="hot. done") for place, step in enumerate(steps)),
    )
    (result,), _ = replay(adapter, [dreamed])
    record = replay_record(adapter, result)
    last = record["steps"][-1]
    assert record["parts_at"] == len(steps) - 1 and not record["confirmed"]
    assert (last["reward"], last["real_reward"], last["same_facts"], last["facts"]) == (1.0, 0.0, True, {})
    assert last["why"] == "hot. done" and last["real_why"].endswith("not done")
    assert all(step["real"] == step["state"] and step["real_reward"] == 0 for step in record["steps"][:-1])
    assert "why" not in record["steps"][0] and record["start"] == episode.task.initial_state


def _untreated(step):
    """The step without the effect of heating, cooling or cleaning."""
    state, after = (
        re.sub(r"Holding (hot|cool|clean) ", "Holding ", text) for text in (step.state, step.next_state)
    )
    return replace(step, state=state, next_state=after)


def test_a_true_dream_has_no_difference(adapter, treated):
    episode, _ = treated
    (result,), _ = replay(adapter, [episode])
    record = replay_record(adapter, result)
    assert record["parts_at"] is None and record["confirmed"] and record["steps"][-1]["real_reward"] == 1.0


def test_a_dream_that_was_not_replayed_has_no_real_states(adapter, treated):
    episode, _ = treated
    record = replay_record(
        adapter,
        Replay(episode, False, (False,) * len(episode.steps), "contradicts itself: x", playable=False),
    )
    assert (
        record["parts_at"] is None
        and "real" not in record["steps"][0]
        and record["note"] == "contradicts itself: x"
    )
