"""Copies under another instruction keep their actions and get the outcome that the page would give."""

import random
from dataclasses import replace

import pytest
from name_lists import ADAPTER, EPISODES

from components.config import load_config
from components.environments import make_adapter
from components.errors import ConfigError
from components.trajectories.augmentation.hindsight import _candidates, hindsight, is_hindsight_copy
from components.trajectories.augmentation.renaming import Names, original_task_id


def failed_episode(number):
    """The episode under the instruction of the next task, whose name is not on its page."""
    episode, other = EPISODES[number], EPISODES[(number + 1) % len(EPISODES)]
    last = replace(episode.steps[-1], reward=0.0)
    return replace(
        episode,
        task=replace(episode.task, instruction=other.task.instruction),
        steps=(*episode.steps[:-1], last),
    )


def test_a_success_becomes_a_failure_with_its_reasoning():
    copies = hindsight(EPISODES, ADAPTER, 2, seed=0)
    assert len(copies) == 2 * len(EPISODES) and len({copy.steps[0].episode_id for copy in copies}) == len(
        copies
    )
    for copy, before in zip(copies, 2 * EPISODES, strict=True):
        assert (
            copy.task.instruction != before.task.instruction
            and original_task_id(copy.task.id) == before.task.id
        )
        assert copy.states == before.states and [s.action for s in copy.steps] == [
            s.action for s in before.steps
        ]
        assert copy.steps[-1].done and not copy.success and copy.steps[-1].reasoning.endswith(": no. lost")
        assert {step.task_id for step in copy.steps} == {copy.task.id}


def test_a_failure_can_become_a_success():
    copies = hindsight([failed_episode(number) for number in range(len(EPISODES))], ADAPTER, 1, seed=0)
    assert copies and all(copy.success and copy.steps[-1].reasoning.endswith("yes. done") for copy in copies)
    assert all(
        f"Select {copy.steps[0].action.split('] ')[1]} from" in copy.task.instruction for copy in copies
    )


def test_an_instruction_without_names_is_replaced_by_another_tasks():
    """No name and no number of its own, though other tasks of its family have numbers."""
    plain = replace(EPISODES[0].task, id="list/plain", instruction="Select from the list and click Submit.")
    episode = replace(
        EPISODES[0], task=plain, steps=tuple(replace(step, task_id=plain.id) for step in EPISODES[0].steps)
    )
    numbered = [
        replace(e, task=replace(e.task, instruction=e.task.instruction.replace("Select", "Select 7")))
        for e in EPISODES[1:]
    ]
    names = Names.of([episode, *numbered])
    tried = _candidates(episode, names, [e.task.instruction for e in numbered], random.Random(0))
    assert {next(tried) for _ in range(50)} == {e.task.instruction for e in numbered}


def test_the_copies_are_recognised_by_their_ids():
    assert [is_hindsight_copy(name) for name in ("a~h1", "a~h2~1", "a~1", "a", "~home/1")] == [
        True,
        True,
        False,
        False,
        False,
    ]


def test_the_same_seed_gives_the_same_copies():
    assert (
        hindsight(EPISODES, ADAPTER, 1, seed=0)
        == hindsight(EPISODES, ADAPTER, 1, seed=0)
        != hindsight(EPISODES, ADAPTER, 1, seed=1)
    )
    assert hindsight(EPISODES, ADAPTER, 0, seed=0) == []


def test_a_misjudged_family_is_left_out():
    """One recorded outcome differs from the judgement: its page may depend on hidden state."""
    strange = replace(
        EPISODES[0], steps=(*EPISODES[0].steps[:-1], replace(EPISODES[0].steps[-1], reward=0.0))
    )
    other = [replace(e, task=replace(e.task, family="another")) for e in EPISODES]
    copies = hindsight([strange, *EPISODES[1:], *other], ADAPTER, 1, seed=0)
    assert {copy.task.family for copy in copies} == {"another"}


def test_an_environment_that_does_not_judge_is_refused_with_the_option():
    with pytest.raises(
        ConfigError, match="hindsight is 1, and the environment alfworld does not say"
    ) as refused:
        hindsight(EPISODES, make_adapter(load_config(None, []).environment), 1, seed=0)
    assert "Set experience_model.hindsight=0" in str(refused.value)
