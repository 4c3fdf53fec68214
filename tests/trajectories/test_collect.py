"""Trajectories from the real engine: the same records for any number of processes, rows and failures."""

from __future__ import annotations

import os
import signal

import pytest

from components.config.worlds.environment_config import EnvironmentConfig
from components.environments.alfworld.adapter import AlfworldAdapter
from components.environments.alfworld.states import read_state
from components.environments.protocol import Step
from components.errors import EnvironmentFailure
from components.trajectories.recording import BEHAVIOURS, Episode, collect, plan
from components.trajectories.store import trajectories, write_transitions

COUNTS = {"expert": 1, "noisy": 1, "near_miss": 1, "random": 1}


def parquet_bytes(path, episodes) -> bytes:
    write_transitions(path, [step for episode in episodes for step in episode.steps])
    return path.read_bytes()


@pytest.fixture(scope="module")
def recorded(adapter, tasks):
    """Sixteen episodes of four games, played in parallel by one process."""
    return collect(adapter, plan(tasks[:4], COUNTS, 1), 10)


def test_a_plan_has_all_episodes_of_every_task_with_unique_ids(tasks):
    episodes = plan(tasks, {"expert": 1, "random": 3}, 2)
    assert len(episodes) == len({episode.id for episode in episodes}) == 48
    assert [(e.behaviour, e.seed) for e in episodes[:4]] == [
        ("expert", 2000),
        ("random", 2000),
        ("random", 2001),
        ("random", 2002),
    ]
    assert Episode(tasks[0], "expert", 7).id == f"{tasks[0].id}/expert-7"
    assert plan(tasks, {}, 0) == []
    assert {episode.id for episode in episodes}.isdisjoint(
        episode.id for episode in plan(tasks, {"expert": 1, "random": 3}, 3)
    )


@pytest.mark.parametrize(("workers", "rows"), [(2, 32), (1, 3)])
def test_the_records_do_not_depend_on_workers_and_rows(recorded, tasks, tmp_path, workers, rows):
    other = collect(
        AlfworldAdapter(EnvironmentConfig(workers=workers)), plan(tasks[:4], COUNTS, 1), 10, rows=rows
    )
    assert parquet_bytes(tmp_path / "a.parquet", other) == parquet_bytes(tmp_path / "b.parquet", recorded)


def test_another_seed_makes_other_records(adapter, recorded, tasks):
    other = collect(adapter, plan(tasks[:4], {"random": 1}, 2), 10)
    assert [[s.action for s in e.steps] for e in other] != [
        [s.action for s in e.steps] for e in recorded if "random" in e.steps[0].behaviour
    ]


def test_episodes_are_in_the_order_of_the_plan_and_complete(recorded, tasks):
    planned = plan(tasks[:4], COUNTS, 1)
    assert [e.steps[0].episode_id for e in recorded] == [episode.id for episode in planned]
    assert [e.steps[0].behaviour for e in recorded] == [*BEHAVIOURS] * 4
    for episode in recorded:
        assert [step.step for step in episode.steps] == list(range(len(episode.steps)))
        assert [step.state for step in episode.steps] == episode.states[:-1]
        assert len(episode.steps) == 10 or episode.steps[-1].done
        assert not any(step.done for step in episode.steps[:-1])
        assert all(
            step.reasoning and step.source == "real" and read_state(step.next_state).event
            for step in episode.steps
        )
    assert (
        trajectories(list(dict.fromkeys(e.task for e in recorded)), [s for e in recorded for s in e.steps])
        == recorded
    )


def test_progress_is_reported_after_every_batch(adapter, tasks):
    progress = []
    collect(
        adapter,
        plan(tasks[:5], {"expert": 1}, 0),
        1,
        rows=2,
        on_batch=lambda done, count: progress.append((done, count)),
    )
    assert progress == [(2, 5), (4, 5), (5, 5)]


class Dying(AlfworldAdapter):
    """The real adapter, whose first worker process is killed before the third step."""

    def open(self, budget=None, **options):
        environment, step, count = super().open(budget), None, [0]
        step = environment.step

        def stepping(actions):
            count[0] += 1
            if count[0] == 3:
                process = environment._workers._slots[0][0]
                os.kill(process.pid, signal.SIGKILL)
                process.join()
            return step(actions)

        environment.step = stepping
        return environment


def test_episodes_broken_by_a_dying_process_are_repeated_with_the_same_result(recorded, tasks):
    assert collect(Dying(EnvironmentConfig(workers=2)), plan(tasks[:4], COUNTS, 1), 10, rows=8) == recorded


class Failing(AlfworldAdapter):
    """The real adapter, where the first row of a batch breaks at its first step, every time."""

    def open(self, budget=None, **options):
        environment = super().open(budget)
        step = environment.step
        environment.step = lambda actions: [
            Step("", 0.0, True, {"failed": "the engine died"}),
            *step([None, *actions[1:]])[1:],
        ]
        return environment


def test_an_episode_that_always_breaks_is_named(tasks):
    (first, *_) = episodes = plan(tasks[:4], COUNTS, 1)
    with pytest.raises(
        EnvironmentFailure,
        match=f"1 of 16 episodes broke in each of 3 tries, as {first.id}: the engine died.*doctor",
    ):
        collect(Failing(EnvironmentConfig(workers=1)), episodes, 10)
