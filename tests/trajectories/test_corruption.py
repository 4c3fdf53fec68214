"""Logs that are made wrong on purpose: how many ends and states change, and what stays."""

from __future__ import annotations

import pytest
from builders import make_episode, make_task

from components.config import ExperienceModelConfig
from components.experience.dataset import select_episodes
from components.trajectories.augmentation.corruption import corrupt_episodes


def make_episodes(count=10, length=4):
    """Return episodes whose states name episode and step; every second one is a success."""
    return [
        make_episode(
            make_task(number, initial_state=f"e{number} s0"),
            *((f"go {step}", f"e{number} s{step}") for step in range(1, length + 1)),
            won=number % 2 == 0,
            episode=f"e{number}",
        )
        for number in range(count)
    ]


def corrupt(episodes, *, outcomes=0.0, states=0.0, seed=0):
    return corrupt_episodes(episodes, flipped_outcomes=outcomes, swapped_states=states, seed=seed)


def test_without_a_share_nothing_changes():
    assert corrupt(make_episodes()) == make_episodes()


@pytest.mark.parametrize(("share", "count"), [(0.3, 3), (1.0, 10)])
def test_a_share_of_the_episodes_ends_the_other_way_round(share, count):
    before = make_episodes()
    after = corrupt(before, outcomes=share)
    changed = [(old, new) for old, new in zip(before, after, strict=True) if old != new]
    assert len(changed) == count
    for old, new in changed:
        assert new.success != old.success and new.steps[-1].done
        assert new.states == old.states and new.steps[:-1] == old.steps[:-1]


@pytest.mark.parametrize(("share", "count"), [(0.25, 10), (1.0, 40)])
def test_a_share_of_the_steps_has_the_next_state_of_another_one(share, count):
    before = make_episodes()
    after = corrupt(before, states=share)
    pairs = [
        (old.next_state, new.next_state)
        for one, other in zip(before, after, strict=True)
        for old, new in zip(one.steps, other.steps, strict=True)
    ]
    assert sum(old != new for old, new in pairs) == count
    assert sorted(old for old, _ in pairs) == sorted(new for _, new in pairs), "no state is made up or lost"
    for episode in after:
        assert [step.state for step in episode.steps] == episode.states[:-1], "a step begins where one ended"
    assert [episode.success for episode in after] == [episode.success for episode in before]


def test_the_seed_decides_what_is_wrong():
    episodes = make_episodes()
    one, same, other = (corrupt(episodes, outcomes=0.5, states=0.5, seed=seed) for seed in (1, 1, 2))
    assert one == same != other


def test_an_experience_model_learns_from_the_wrong_logs_that_its_config_asks_for():
    episodes = make_episodes()
    plain = select_episodes(episodes, ExperienceModelConfig(), 0)
    assert plain == episodes
    wrong = ExperienceModelConfig(flipped_outcomes=1.0, swapped_states=0.5)
    after = select_episodes(episodes, wrong, 0)
    assert after == corrupt(episodes, outcomes=1.0, states=0.5)
    assert [one.success for one in after] == [not one.success for one in episodes]
