"""Episodes under another instruction: what was done stays, and the end is what the page would have said."""

import random
from dataclasses import replace

import pytest
from name_lists import ADAPTER, EPISODES

from components.config import load_config
from components.environments import make_adapter
from components.errors import ConfigError
from components.trajectories.augmentation.hindsight import _candidates, hindsight, in_hindsight
from components.trajectories.augmentation.renaming import Names, told_of


def lost(number):
    """The episode under the instruction of the next task, whose name is not on its page."""
    episode, other = EPISODES[number], EPISODES[(number + 1) % len(EPISODES)]
    last = replace(episode.steps[-1], reward=0.0)
    return replace(
        episode,
        task=replace(episode.task, instruction=other.task.instruction),
        steps=(*episode.steps[:-1], last),
    )


def test_a_success_is_a_failure_under_another_instruction_and_is_told_why():
    told = hindsight(EPISODES, ADAPTER, 2, seed=0)
    assert len(told) == 2 * len(EPISODES) and len({one.steps[0].episode_id for one in told}) == len(told)
    for one, before in zip(told, 2 * EPISODES, strict=True):
        assert one.task.instruction != before.task.instruction and told_of(one.task.id) == before.task.id
        assert one.states == before.states and [s.action for s in one.steps] == [
            s.action for s in before.steps
        ]
        assert one.steps[-1].done and not one.success and one.steps[-1].reasoning.endswith(": no. lost")
        assert {step.task_id for step in one.steps} == {one.task.id}


def test_a_failure_may_be_a_success():
    told = hindsight([lost(number) for number in range(len(EPISODES))], ADAPTER, 1, seed=0)
    assert told and all(one.success and one.steps[-1].reasoning.endswith("yes. done") for one in told)
    assert all(f"Select {one.steps[0].action.split('] ')[1]} from" in one.task.instruction for one in told)


def test_an_instruction_in_which_nothing_can_be_changed_takes_anothers():
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


def test_the_copies_are_known_by_their_ids():
    assert [in_hindsight(name) for name in ("a~h1", "a~h2~1", "a~1", "a", "~home/1")] == [
        True,
        True,
        False,
        False,
        False,
    ]


def test_the_same_seed_tells_the_same():
    assert (
        hindsight(EPISODES, ADAPTER, 1, seed=0)
        == hindsight(EPISODES, ADAPTER, 1, seed=0)
        != hindsight(EPISODES, ADAPTER, 1, seed=1)
    )
    assert hindsight(EPISODES, ADAPTER, 0, seed=0) == []


def test_a_family_about_which_the_judge_errs_is_left_out():
    """One recorded end that is not what the looks say: its page may judge by what no state tells."""
    strange = replace(
        EPISODES[0], steps=(*EPISODES[0].steps[:-1], replace(EPISODES[0].steps[-1], reward=0.0))
    )
    other = [replace(e, task=replace(e.task, family="another")) for e in EPISODES]
    told = hindsight([strange, *EPISODES[1:], *other], ADAPTER, 1, seed=0)
    assert {one.task.family for one in told} == {"another"}


def test_an_environment_that_does_not_judge_is_refused_with_the_option():
    with pytest.raises(
        ConfigError, match="hindsight is 1, and the environment alfworld does not say"
    ) as refused:
        hindsight(EPISODES, make_adapter(load_config(None, []).environment), 1, seed=0)
    assert "Set experience_model.hindsight=0" in str(refused.value)
