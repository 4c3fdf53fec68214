"""Which offline episodes a model learns from: by who acted, and by how many transitions there may be."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest
from builders import VOCABULARY, make_episode, make_task

from components.config import ExperienceModelConfig, RetrievalConfig
from components.errors import DataError
from components.experience.dataset import (
    chosen,
    drawn,
    drawn_episodes,
    of_families,
    premise_examples,
    transition_examples,
    with_premises,
)
from components.experience.retrieval.replay_buffer import ReplayBuffer
from components.records import Trajectory
from components.trajectories.augmentation.renaming import told_of


def episodes() -> list[Trajectory]:
    """Ten tasks with an expert's episode of two steps and a random one of four each."""
    made = []
    for task in map(make_task, range(10)):
        for behaviour, steps in (("expert", 2), ("random", 4)):
            plain = make_episode(task, *[("look", "s")] * steps, episode=f"{behaviour}/{task.id}")
            made.append(
                Trajectory(
                    task,
                    tuple(
                        step.__class__(**{**step.__dict__, "behaviour": behaviour}) for step in plain.steps
                    ),
                )
            )
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
    assert all(
        sum(e.task.id == name for e in found) == 2
        for found, ids in zip(sets, names, strict=True)
        for name in ids
    )
    other = chosen(episodes(), ExperienceModelConfig(transitions=13), 4)
    assert {e.task.id for e in other} != names[0]


def test_each_is_drawn_as_often_as_every_other_or_once_more():
    assert drawn([], 2.0, 0) == [] and len(drawn("abc", 0.1, 0)) == 1
    for passes in (0.5, 1.0, 2.3):
        counts = Counter(drawn(range(20), passes, 1))
        assert (
            counts.total() == round(20 * passes)
            and max(counts.values()) - min(counts[n] for n in range(20)) <= 1
        )
    assert drawn(range(20), 0.5, 1) == drawn(range(20), 0.5, 1) != drawn(range(20), 0.5, 2)


def test_near_misses_are_drawn_as_often_as_their_weight_says_and_the_whole_stays_as_long():
    near = [replace(e, steps=tuple(replace(s, behaviour="near_miss") for s in e.steps)) for e in episodes()]
    for weight, expected in ((2.0, (40 / 3, 20 / 3)), (1.0, (10, 10)), (6.0, (120 / 7, 20 / 7))):
        found = drawn_episodes(
            near + episodes(), ExperienceModelConfig(epochs=0.5, near_miss_weight=weight), 0
        )
        count = sum(e.steps[0].behaviour == "near_miss" for e in found)
        assert (count, len(found) - count) == tuple(map(round, expected))
    assert (
        len(drawn_episodes(episodes(), ExperienceModelConfig(epochs=0.5), 0)) == 10
    )  # there are none: half of all


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
        changed = [
            step.reasoning != old.reasoning for step, old in zip(after.steps, before.steps, strict=True)
        ]
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
    assert {e.task.family for e in of_families(episodes, [one])} == {one} < families and of_families(
        episodes, []
    ) == episodes


def test_a_copy_is_not_shown_its_own_task_as_a_demonstration():
    """In other names it would find the very step that it asks about."""
    steps = [("take cup 1", "You took cup 1."), ("go", "Here is pan 2.")]
    there = [make_episode(make_task(number), *steps) for number in range(2)]
    buffer = ReplayBuffer(RetrievalConfig(), [step for episode in there for step in episode.steps])
    copy = replace(
        there[0], steps=tuple(replace(step, task_id=f"{step.task_id}~1") for step in there[0].steps)
    )
    asked: list[str] = []
    buffer.retrieve = lambda queries, own: asked.extend(own) or ReplayBuffer.retrieve(buffer, queries, own)  # type: ignore[method-assign]
    transition_examples(VOCABULARY, [copy], buffer, ExperienceModelConfig(), own=told_of)
    assert asked == [there[0].task.id] * 2
