"""The real engine, started once for all tests, and episodes of every behaviour that were played in it."""

from __future__ import annotations

import pytest
import torch

from components.config import EnvironmentConfig
from components.environments import make_adapter
from components.trajectories.collect import collect, plan

torch.set_num_threads(1)  # the models of the tests are too small for more to help


@pytest.fixture(scope="session")
def adapter():
    """ALFWorld with generated games and one worker process."""
    return make_adapter(EnvironmentConfig(workers=1))


@pytest.fixture(scope="session")
def world(adapter):
    """The real environment; every test resets it with tasks of its own."""
    environment = adapter.open()
    yield environment
    environment.close()


@pytest.fixture(scope="session")
def tasks(adapter):
    """Twelve training tasks, two of each family."""
    return adapter.tasks("train", 12, 0)


@pytest.fixture(scope="session")
def played(adapter, tasks):
    """Behaviour -> its episodes of all `tasks`, from the real engine."""
    counts = {"expert": 1, "noisy": 1, "near_miss": 2, "random": 2}
    episodes = collect(adapter, plan(tasks, counts, seed=3), max_steps=20, rows=72)
    return {name: [e for e in episodes if e.steps[0].behaviour == name] for name in counts}
