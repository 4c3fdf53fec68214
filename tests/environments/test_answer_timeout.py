"""A world that does not answer: its episode has failed, the next one is played, other alarms still ring."""

from __future__ import annotations

import signal
import threading
import time

import pytest
from builders import make_task

from components.config import load_config
from components.environments import make_adapter
from components.environments.answer_timeout import AnswerTimeout
from components.environments.vectorized import RowsEnvironment
from components.errors import EnvironmentFailure

TIMEOUT = AnswerTimeout(0.2)


def open_hanging(*options):
    config = load_config(
        None,
        [
            "environment.name=gymnasium",
            "environment.gymnasium.factory=text_worlds:Hanging",
            *options,
        ],
    )
    adapter = make_adapter(config.environment)
    return adapter.open(), adapter.tasks("train", 2, 0)


def test_a_step_without_an_answer_fails_its_episode_alone():
    world, tasks = open_hanging("environment.timeout_seconds=0.2")
    world.reset(tasks)
    late, other = world.step(["wait", "add"])
    assert late.done and other.state.startswith("Count: 1.")
    reason = late.info["failed"]
    assert f"'wait' in {tasks[0].id} had no answer after 0.2 s" in reason
    assert "(environment.timeout_seconds)" in reason
    assert world.reset(tasks) == [task.initial_state for task in tasks]
    assert "failed" not in world.step(["add", "add"])[0].info
    world.close()


class Stubborn:
    """A world that goes on computing whatever is raised, the first time."""

    admissible = ()

    def begin(self, task):
        return task.initial_state

    def close(self):
        pass

    def act(self, action):
        try:
            while True:
                sum(range(1000))
        except Exception:
            while True:
                sum(range(1000))


def test_a_world_that_catches_the_failure_gets_it_again():
    world = RowsEnvironment(Stubborn, timeout=TIMEOUT)
    world.reset([make_task(id="own/door")])
    assert "'push' in own/door had no answer" in world.step(["push"])[0].info["failed"]


@pytest.fixture
def rung():
    """The times at which an alarm rang that was set around a limit."""
    times = []
    alarm_of_pytest = signal.setitimer(signal.ITIMER_REAL, 0)
    handler = signal.signal(signal.SIGALRM, lambda *_: times.append(time.monotonic()))
    yield times
    signal.setitimer(signal.ITIMER_REAL, 0)
    signal.signal(signal.SIGALRM, handler)
    signal.setitimer(signal.ITIMER_REAL, *alarm_of_pytest)


def test_an_alarm_around_it_rings_in_time(rung):
    signal.setitimer(signal.ITIMER_REAL, 0.5)
    began = time.monotonic()
    with pytest.raises(EnvironmentFailure), TIMEOUT.within("A call"):
        time.sleep(5)
    time.sleep(1)
    assert len(rung) == 1 and 0.4 < rung[0] - began < 0.9
    signal.setitimer(signal.ITIMER_REAL, 0.1)
    with TIMEOUT.within("A call"):
        time.sleep(0.3)
    assert len(rung) == 2, "one that rings before the limit is left alone"


def test_without_a_limit_and_in_other_threads_nothing_is_set(rung):
    def call(limit):
        with limit.within("A call"):
            assert signal.getitimer(signal.ITIMER_REAL) == (0.0, 0.0)

    call(AnswerTimeout(0))
    thread = threading.Thread(target=call, args=(TIMEOUT,))
    thread.start()
    thread.join()
