"""How likely does the policy solve a task? A Beta posterior with shrinkage, whose draws choose tasks.

A task that was never played has the prior of its instruction, an instruction that of its family, a family
that of all tasks. A generated task has no family: the prior of its instruction is that of all tasks. With w
wins and l losses of its own and the prior mean m, a task's success is

    p ~ Beta(STRENGTH m + w, STRENGTH (1 - m) + l)

and m of each level is (w + STRENGTH m_above) / (w + l + STRENGTH). There w and l leave out those of the level
below that the task belongs to, so that its evidence counts once: a task's own rollouts are no part of its
instruction's prior, an instruction's none of its family's. All counts are multiplied by DECAY after
each iteration, because the policy changes. A draw's variance p (1 - p) is the chance that two rollouts end
differently, up to a factor: a group of equal returns teaches nothing. Choosing by draws (Thompson sampling)
tries what is uncertain and repeats what is telling.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from typing import Any

from components.records import Task

STRENGTH = 4.0
"""Rollouts that a prior counts as."""
DECAY = 0.8
"""Factor of all counts in each iteration."""
FIRST_MEAN = 0.5
"""Success of a task before anything was played."""
LEAST = 1e-3
"""Smallest parameter of a Beta distribution."""


class SuccessPosterior:
    """Wins and losses of tasks, instructions and families, decayed."""

    def __init__(self) -> None:
        self._counts: dict[str, list[float]] = {}

    def update(self, returns: Iterable[tuple[Task, Sequence[float]]]) -> None:
        """Decay all counts, then add an iteration's returns of 0 and 1."""
        for counts in self._counts.values():
            counts[0] *= DECAY
            counts[1] *= DECAY
        for task, values in returns:
            wins = sum(value > 0.5 for value in values)
            for level in _levels(task):
                counts = self._counts.setdefault(level, [0.0, 0.0])
                counts[0] += wins
                counts[1] += len(values) - wins

    def mean(self, task: Task) -> float:
        """Return the expected success of `task`."""
        levels = _levels(task)
        wins, losses = self._of(levels[-1])
        return (wins + STRENGTH * self._prior(levels)) / (wins + losses + STRENGTH)

    def draw_variance(self, task: Task, rng: random.Random) -> float:
        """Return p (1 - p) of a success p drawn for `task`, at most 0.25."""
        levels = _levels(task)
        mean = self._prior(levels)
        wins, losses = self._of(levels[-1])
        success = rng.betavariate(
            max(LEAST, STRENGTH * mean + wins), max(LEAST, STRENGTH * (1 - mean) + losses)
        )
        return success * (1 - success)

    def _prior(self, levels: Sequence[str]) -> float:
        """Return the mean of all levels above the last one, each without the counts of the one below it."""
        mean = FIRST_MEAN
        for level, below in pairwise(levels):
            wins, losses = (
                max(0.0, count - inner) for count, inner in zip(self._of(level), self._of(below), strict=True)
            )
            mean = (wins + STRENGTH * mean) / (wins + losses + STRENGTH)
        return mean

    def _of(self, level: str) -> tuple[float, float]:
        wins, losses = self._counts.get(level, (0.0, 0.0))
        return wins, losses

    def state_dict(self) -> dict[str, Any]:
        """The counts as plain JSON values."""
        return {name: list(counts) for name, counts in self._counts.items()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue from a `state_dict`."""
        self._counts = {name: list(counts) for name, counts in state.items()}


def _levels(task: Task) -> list[str]:
    """Keys of what a task shares with others, the widest first, then its own."""
    family = [f"family/{task.family}"] if task.family else []
    return ["all", *family, f"instruction/{task.instruction}", f"task/{task.id}"]
