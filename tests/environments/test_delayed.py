"""Environments whose steps take a stated time."""

from __future__ import annotations

import time

import pytest

from components.config import load_config
from components.environments import make_adapter
from components.environments.delayed import delay_steps
from components.environments.protocol import Forkable

SECONDS = 0.2


@pytest.fixture
def tasks():
    return make_adapter(load_config(None).environment).tasks("train", 3, 0)


def seconds_of_a_step(world, tasks, actions):
    world.reset(tasks)
    world.step(["look" if action else None for action in actions])  # the first one may load code
    began = time.monotonic()
    answers = world.step(actions)
    return time.monotonic() - began, answers


@pytest.mark.parametrize(("rows", "waits"), [(1, 3), (2, 2), (3, 1), (8, 1)])
def test_a_step_takes_the_time_once_for_each_group_of_rows(tasks, rows, waits):
    adapter = delay_steps(make_adapter(load_config(None).environment), SECONDS, rows)
    world = adapter.open()
    try:
        seconds, answers = seconds_of_a_step(world, tasks, ["look"] * 3)
    finally:
        world.close()
    assert waits * SECONDS <= seconds < (waits + 0.9) * SECONDS
    assert all(answer is not None for answer in answers)


def test_a_row_without_an_action_does_not_wait_and_the_answers_are_the_same(tasks):
    plain, slow = make_adapter(load_config(None).environment), make_adapter(load_config(None).environment)
    worlds = [plain.open(), delay_steps(slow, SECONDS, 1).open()]
    try:
        found = [seconds_of_a_step(world, tasks, ["look", None, None]) for world in worlds]
    finally:
        for world in worlds:
            world.close()
    assert found[0][1] == found[1][1]
    assert SECONDS <= found[1][0] < 1.9 * SECONDS
    assert isinstance(worlds[1], Forkable) and worlds[1].interactions == worlds[0].interactions


def test_without_a_delay_the_adapter_is_untouched():
    adapter = make_adapter(load_config(None).environment)
    assert delay_steps(adapter, 0.0, 4) is adapter and "open" not in vars(adapter)
