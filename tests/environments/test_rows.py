"""A batch of worlds: a failure of one is recorded, and the others go on."""

from __future__ import annotations

import threading
import time

import numpy as np
import pytest

from components.environments.protocol import Environment
from components.environments.text_world.plain_adapter import build_task
from components.environments.vectorized import Outcome, RowsEnvironment
from components.errors import EnvironmentFailure

TASKS = [
    build_task("own", str(number), "train", "count", f"Count 0 of {number}.", number=number)
    for number in range(3)
]


class World:
    """Counts steps, and does what `ruin` returns where it returns something."""

    made = 0

    def __init__(self, ruin):
        World.made += 1
        self.ruin, self.number, self.closed, self.admissible = ruin, World.made, False, ()

    def begin(self, task):
        self.task, self.outcome, self.count = task, Outcome(1.0), 0
        return self.ruin("begin", self) or task.initial_state

    def act(self, action):
        self.count += 1
        self.admissible = (f"wait {self.count}",)
        return self.outcome.step(
            *(self.ruin(action, self) or (f"Count {self.count}.", float(self.count == 3), self.count == 3))
        )

    def close(self):
        self.closed = True


@pytest.fixture
def make():
    """Make an environment whose worlds answer what `ruin(action, world)` returns; None: the next count."""
    environments = []

    def maker(ruin=lambda action, world: None, **options):
        environments.append(RowsEnvironment(lambda: World(ruin), **options))
        return environments[-1]

    World.made = 0
    yield maker
    for environment in environments:
        environment.close()


def test_each_row_plays_its_own_episode(make):
    world = make()
    assert isinstance(world, Environment) and world.reset(TASKS) == [task.initial_state for task in TASKS]
    world.step(["a", None, "a"])
    first, second, third = world.step(["a", "a", None])
    assert (first.state, second.state, third) == ("Count 2.", "Count 1.", None) and world.interactions == 4
    assert first.info["admissible"] == world.admissible[0] == ("wait 2",) and world.admissible[1] == (
        "wait 1",
    )
    (won, *_) = world.step(["a", None, None])
    assert (won.reward, won.done) == (1.0, True)
    assert world.reset(TASKS[:1]) == [TASKS[0].initial_state] and World.made == 3, "worlds are used again"


@pytest.mark.parametrize(
    ("bad_answer", "words"),
    [
        (RuntimeError("the engine is gone"), "RuntimeError: the engine is gone"),
        (("", 0.0, False), "answered ''. Expected a state of words"),
        ((None, 0.0, False), "answered None"),
        ((b"bytes", 0.0, False), "answered b'bytes'"),
        (({"text": "x" * 9999}, 0.0, False), "characters"),
        (("words", "high", False), "reward 'high'. Expected a number"),
        (("words", float("nan"), False), "reward nan"),
        (("words", 0.0, "yes"), "'yes' to whether the episode is over"),
    ],
)
def test_a_failure_of_a_world_is_recorded_and_gives_no_reward(make, bad_answer, words):
    def ruin(action, world):
        if action == "break" and isinstance(bad_answer, Exception):
            raise bad_answer
        return bad_answer if action == "break" else None

    world = make(ruin)
    world.reset(TASKS)
    broken, whole, _ = world.step(["break", "a", "a"])
    assert words in broken.info["failed"] and (broken.reward, broken.done, broken.state) == (
        0.0,
        True,
        TASKS[0].initial_state,
    )
    assert whole.state == "Count 1." and "failed" not in whole.info
    assert "failed" in world.step(["a", None, None])[0].info, "a broken episode stays broken"
    made = World.made
    world.reset(TASKS)
    assert World.made == made + 1 and world.step(["a", "a", "a"])[0].state == "Count 1.", (
        "the next one has a new world"
    )


def test_a_world_that_does_not_start_fails_at_its_first_step(make):
    def ruin(action, world):
        if action == "begin" and world.task is TASKS[1]:
            raise OSError("no room")

    world = make(ruin)
    assert world.reset(TASKS) == [task.initial_state for task in TASKS]
    first, second, _ = world.step(["a", "a", "a"])
    assert second.info == {"failed": "OSError: no room"} and second.done and first.state == "Count 1."
    world.reset(TASKS[1:2])
    assert world.step(["a"])[0].info == {"failed": "OSError: no room"}, (
        "the last row of a batch is no sign of more than itself"
    )
    with pytest.raises(EnvironmentFailure, match="No episode of 2 could be started: OSError: no room"):
        world.reset([TASKS[1]] * 2)


def test_an_episode_with_another_first_state_than_recorded_has_failed(make):
    world = make(lambda action, world: "Count 7." if action == "begin" and world.task is TASKS[2] else None)
    world.reset(TASKS)
    assert (
        "own/2 began with 'Count 7.', recorded was 'Count 0 of 2.'"
        in world.step([None, None, "a"])[2].info["failed"]
    )


def test_a_world_that_died_between_episodes_is_replaced(make):
    def ruin(action, world):
        if action == "begin" and world.count == 0 and getattr(world, "played", False):
            raise ConnectionError("timed out")
        world.played = True

    world = make(ruin)
    for _ in range(3):
        world.reset(TASKS[:1])
        assert "failed" not in world.step(["a"])[0].info
    assert World.made == 3


def test_rewards_of_the_world_become_an_outcome():
    outcome = Outcome(1.0)
    assert [outcome.step("s", *answer).reward for answer in ((0.25, False), (0.25, False), (0.5, True))] == [
        0.0,
        0.0,
        1.0,
    ]
    assert Outcome(1.0).step("s", 0.9, True).reward == 0.0 and Outcome(0.5).step("s", 0.9, True).reward == 1.0
    assert Outcome(1.0).step("s", np.float32(1.0), np.True_).reward == 1.0, "worlds of arrays answer so"
    assert (
        Outcome(1.0).step("s", None, False).info["world_reward"] == 0.0
        and Outcome(0.0).step("s", 0.0, True).reward == 1.0
    )


def test_parallel_rows_are_stepped_at_the_same_time(make):
    barrier = threading.Barrier(3)
    world = make(lambda action, world: barrier.wait(20) and None, parallel=3)
    world.reset(TASKS)
    began = time.monotonic()
    assert [step.state for step in world.step(["a"] * 3)] == ["Count 1."] * 3
    assert time.monotonic() - began < 20
