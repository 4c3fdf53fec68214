"""Which offline episodes a model learns from: by behaviour, family and number of transitions."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest
from builders import WORLD, make_episode, make_task

from components.config import ExperienceModelConfig, RetrievalConfig
from components.errors import DataError
from components.experience.dataset import (
    assume_premises,
    episodes_of_families,
    premise_examples,
    repeat_evenly,
    sample_training_episodes,
    select_episodes,
    transition_examples,
)
from components.experience.retrieval.replay_buffer import ReplayBuffer
from components.records import Trajectory
from components.trajectories.augmentation.renaming import original_task_id


def episodes() -> list[Trajectory]:
    """Ten tasks, each with an expert's episode of two steps and a random one of four."""
    created = []
    for task in map(make_task, range(10)):
        for behaviour, steps in (("expert", 2), ("random", 4)):
            plain = make_episode(task, *[("look", "s")] * steps, episode=f"{behaviour}/{task.id}")
            created.append(
                Trajectory(
                    task,
                    tuple(
                        step.__class__(**{**step.__dict__, "behaviour": behaviour}) for step in plain.steps
                    ),
                )
            )
    return created


def steps(selected: list[Trajectory]) -> int:
    return sum(len(episode.steps) for episode in selected)


def test_all_episodes_are_selected_by_default():
    assert select_episodes(episodes(), ExperienceModelConfig(), 0) == episodes()


def test_only_episodes_of_the_named_behaviours_are_selected():
    selected = select_episodes(episodes(), ExperienceModelConfig(behaviours=["expert"]), 0)
    assert len(selected) == 10 and {e.steps[0].behaviour for e in selected} == {"expert"}


def test_a_smaller_set_is_part_of_every_larger_one_and_holds_whole_tasks():
    sets = [
        select_episodes(episodes(), ExperienceModelConfig(transitions=most), 3) for most in (13, 30, 59, 60)
    ]
    assert [steps(selected) for selected in sets] == [12, 30, 54, 60]
    names = [{e.task.id for e in selected} for selected in sets]
    assert names[0] < names[1] < names[2] < names[3]
    assert all(
        sum(e.task.id == name for e in selected) == 2
        for selected, ids in zip(sets, names, strict=True)
        for name in ids
    )
    other = select_episodes(episodes(), ExperienceModelConfig(transitions=13), 4)
    assert {e.task.id for e in other} != names[0]


def test_each_item_is_repeated_equally_often_or_once_more():
    assert repeat_evenly([], 2.0, 0) == [] and len(repeat_evenly("abc", 0.1, 0)) == 1
    for passes in (0.5, 1.0, 2.3):
        counts = Counter(repeat_evenly(range(20), passes, 1))
        assert (
            counts.total() == round(20 * passes)
            and max(counts.values()) - min(counts[n] for n in range(20)) <= 1
        )
    assert (
        repeat_evenly(range(20), 0.5, 1)
        == repeat_evenly(range(20), 0.5, 1)
        != repeat_evenly(range(20), 0.5, 2)
    )


def test_near_misses_are_sampled_by_their_weight_and_the_total_stays_the_same():
    near = [replace(e, steps=tuple(replace(s, behaviour="near_miss") for s in e.steps)) for e in episodes()]
    for weight, expected in ((2.0, (40 / 3, 20 / 3)), (1.0, (10, 10)), (6.0, (120 / 7, 20 / 7))):
        selected = sample_training_episodes(
            near + episodes(), ExperienceModelConfig(epochs=0.5, near_miss_weight=weight), 0
        )
        count = sum(e.steps[0].behaviour == "near_miss" for e in selected)
        assert (count, len(selected) - count) == tuple(map(round, expected))
    assert (
        len(sample_training_episodes(episodes(), ExperienceModelConfig(epochs=0.5), 0)) == 10
    )  # without near misses: half of all


def test_an_empty_selection_is_an_error():
    with pytest.raises(DataError, match="No offline episode is left of 20.*3 transitions"):
        select_episodes(episodes(), ExperienceModelConfig(transitions=3), 0)


def test_half_of_the_episodes_get_a_premise_and_the_reasoning_that_follows(adapter, played):
    episodes = played["expert"]
    conditioned = assume_premises(episodes, adapter, 0)
    dreamed = [e for e in conditioned if e.premise]
    assert 0 < len(dreamed) < len(episodes) and [e.task for e in conditioned] == [e.task for e in episodes]
    for before, after in zip(episodes, conditioned, strict=True):
        assert after.premise in ("", adapter.premise(before)) and after.states == before.states
        changed = [
            step.reasoning != old.reasoning for step, old in zip(after.steps, before.steps, strict=True)
        ]
        assert any(changed) == bool(after.premise)
    assert assume_premises(episodes, adapter, 0, share=0.0) == episodes
    unchanged = assume_premises(episodes, adapter, 0, share=1.0, taught=False)
    assert all(e.premise for e in unchanged) and [e.steps for e in unchanged] == [e.steps for e in episodes]


def test_an_episode_that_does_not_show_its_premise_gives_no_example(adapter, played):
    episodes = [*played["expert"], *played["random"]]
    shown = [e for e in episodes if adapter.premise(e)]
    assert len(premise_examples(WORLD, episodes, adapter)) == len(shown) < len(episodes)


def test_only_episodes_of_the_named_families_are_selected(played):
    episodes = played["expert"]
    families = {e.task.family for e in episodes}
    one = sorted(families)[0]
    assert {e.task.family for e in episodes_of_families(episodes, [one])} == {one} < families and list(
        episodes_of_families(episodes, [])
    ) == episodes


def test_a_renamed_copy_gets_no_demonstration_of_its_own_task(monkeypatch):
    """Under other names, the copy would retrieve the very step that it asks about."""
    steps = [("take cup 1", "You took cup 1."), ("go", "Here is pan 2.")]
    originals = [make_episode(make_task(number), *steps) for number in range(2)]
    buffer = ReplayBuffer(RetrievalConfig(), [step for episode in originals for step in episode.steps])
    copy = replace(
        originals[0], steps=tuple(replace(step, task_id=f"{step.task_id}~1") for step in originals[0].steps)
    )
    own_tasks: list[str] = []

    def retrieve(queries, tasks):
        own_tasks.extend(tasks)
        return ReplayBuffer.retrieve(buffer, queries, tasks)

    monkeypatch.setattr(buffer, "retrieve", retrieve)
    transition_examples(WORLD, [copy], buffer, ExperienceModelConfig(), own=original_task_id)
    assert own_tasks == [originals[0].task.id] * 2
