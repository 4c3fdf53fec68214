"""A small generated shop, and episodes of every behaviour in it."""

from __future__ import annotations

import pytest
from shops import settings

from components.environments import make_adapter
from components.trajectories.recording import collect, plan


@pytest.fixture(scope="session")
def shop():
    """The adapter of a small generated shop."""
    return make_adapter(settings())


@pytest.fixture(scope="session")
def shopped(shop):
    """Behaviour -> its episodes of 60 training goals."""
    tasks = shop.tasks("train", 60, 0)
    counts = {"expert": 1, "noisy": 1, "near_miss": 2, "random": 1}
    episodes = collect(shop, plan(tasks, counts, 3), 20, rows=100)
    return {name: [e for e in episodes if e.steps[0].behaviour == name] for name in counts}
