"""Which offline episodes a model learns from: by who acted, and by how many transitions there may be."""

from __future__ import annotations

import pytest
from builders import VOCABULARY, make_episode, make_task

from components.config import ExperienceModelConfig
from components.errors import DataError
from components.experience.dataset import chosen, of_families, premise_examples, with_premises
from components.records import Trajectory


def episodes() -> list[Trajectory]:
    """Ten tasks with an expert's episode of two steps and a random one of four each."""
    made = []
    for task in map(make_task, range(10)):
        for behaviour, steps in (("expert", 2), ("random", 4)):
            plain = make_episode(task, *[("look", "s")] * steps, episode=f"{behaviour}/{task.id}")
            made.append(Trajectory(task, tuple(step.__class__(**{**step.__dict__, "behaviour": behaviour}) for step in plain.steps)))
    return made


def steps(found: list[Trajectory]) -> int:
    return sum(len(episode.steps) for episode in found)


def test_everything_is_learnt_from_unless_said_otherwise():
    assert chosen(episodes(), ExperienceModelConfig(), 0) == episodes()


def test_some_behaviours_alone():
    found = chosen(episodes(), ExperienceModelConfig(behaviours=["expert"]), 0)
    assert len(found) == 10 and {e.steps[0].behaviour for e in found} == {"expert"}


def test_a_smaller_set_is_part_of_every_larger_one_and_has_whole_tasks():
    sets = [chosen(episodes(), ExperienceModelConfig(transitions=most), 3) for most in (13, 30, 59, 60)]
    assert [steps(found) for found in sets] == [12, 30, 54, 60]
    names = [{e.task.id for e in found} for found in sets]
    assert names[0] < names[1] < names[2] < names[3]
    assert all(sum(e.task.id == name for e in found) == 2 for found, ids in zip(sets, names, strict=True) for name in ids)
    other = chosen(episodes(), ExperienceModelConfig(transitions=13), 4)
    assert {e.task.id for e in other} != names[0]


def test_nothing_left_is_said():
    with pytest.raises(DataError, match="No offline episode is left of 20.*3 transitions"):
        chosen(episodes(), ExperienceModelConfig(transitions=3), 0)


def test_half_of_the_episodes_are_told_as_dreams_with_the_reasoning_that_follows(adapter, played):
    episodes = played["expert"]
    told = with_premises(episodes, adapter, 0)
    dreamed = [e for e in told if e.premise]
    assert 0 < len(dreamed) < len(episodes) and [e.task for e in told] == [e.task for e in episodes]
    for before, after in zip(episodes, told, strict=True):
        assert after.premise in ("", adapter.premise(before)) and after.states == before.states
        changed = [step.reasoning != old.reasoning for step, old in zip(after.steps, before.steps, strict=True)]
        assert any(changed) == bool(after.premise)
    assert with_premises(episodes, adapter, 0, share=0.0) == episodes
    kept = with_premises(episodes, adapter, 0, share=1.0, taught=False)
    assert all(e.premise for e in kept) and [e.steps for e in kept] == [e.steps for e in episodes]


def test_an_episode_that_has_not_shown_its_premise_teaches_none(adapter, played):
    episodes = [*played["expert"], *played["random"]]
    shown = [e for e in episodes if adapter.premise(e)]
    assert len(premise_examples(VOCABULARY, episodes, adapter)) == len(shown) < len(episodes)


def test_some_families_alone(played):
    episodes = played["expert"]
    families = {e.task.family for e in episodes}
    one = sorted(families)[0]
    assert {e.task.family for e in of_families(episodes, [one])} == {one} < families and of_families(episodes, []) == episodes
