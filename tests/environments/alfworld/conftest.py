"""Fixtures of the ALFWorld tests."""

from __future__ import annotations

import pytest
from alfworld_play import play_anything


@pytest.fixture(scope="session")
def wild(world, tasks):
    """Sixty steps of any commands at all in each of the twelve games."""
    return play_anything(world, tasks, 60, 1)
