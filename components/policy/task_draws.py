"""Random draws of tasks, and the rows of a batch of groups."""

from __future__ import annotations

import random
from collections.abc import Sequence

from components.records import Task


def repeat_tasks(tasks: Sequence[Task], size: int) -> list[Task]:
    """Return each task `size` times in succession: the rows of a batch of groups."""
    return [task for task in tasks for _ in range(size)]


def draw_tasks(tasks: Sequence[Task], count: int, seed: int) -> list[Task]:
    """Return `count` random tasks; none occurs again before all have occurred."""
    rng = random.Random(seed)
    pool: list[Task] = []
    while len(pool) < count:
        pool += rng.sample(list(tasks), len(tasks))
    return pool[:count]
