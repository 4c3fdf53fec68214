"""Probes: a few rollouts of each generated task, before it competes with the others (`selection: posterior`).

A new task waits. Its first rollouts are PROBES in number, or more if few tasks wait. If they end differently,
it has passed, and competes by draws of the posterior from then on. If they are all won, or all lost, it is
probed again. After MAX_ALIKE or more it is rejected as trivial or impossible. A task that is won with
probability p is rejected with p^4 + (1 - p)^4: 0.13 at p = 0.5, 0.66 at 0.1, 0.92 at 0.02.

Probes are rollouts like all others: they enter the posterior, are trained on as a group of their own, and
their steps count as dreamed steps. The probed tasks share the rollouts of one place, so an iteration plays as
many rollouts as without probes. A group of two rollouts is more often without variance than a full one, and
`zero_variance_groups` counts both alike. `rollouts_with_variance` weights groups by their rollouts: compare
it with 1 - `zero_variance_groups` of a selection without probes.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence

from components.records import Task

PROBES = 2
"""Rollouts of a probe: the smallest group whose returns can differ."""
MAX_ALIKE = 4
"""A task is rejected after this many rollouts with the same return."""


def rollouts_with_variance(returns: Iterable[Sequence[float]]) -> float:
    """Return the share of rollouts in groups whose returns differ; NaN without rollouts."""
    groups = list(returns)
    rollouts = sum(map(len, groups))
    return sum(len(group) for group in groups if len(set(group)) > 1) / rollouts if rollouts else math.nan


class TaskProbes:
    """Wins and rollouts of the generated tasks that have not passed yet."""

    def __init__(self) -> None:
        self._waiting: dict[str, list[int]] = {}

    def add(self, task: Task) -> None:
        """Let a new task wait for its probes."""
        self._waiting[task.id] = [0, 0]

    def is_waiting(self, task: Task) -> bool:
        """Whether the task has not passed yet."""
        return task.id in self._waiting

    def rows(self, tasks: Sequence[Task], count: int, draw: Callable[[Task], float]) -> list[Task]:
        """Return the tasks to probe with `count` rollouts, each as often as it is played, in succession.

        Tasks whose probes have begun come first, then those of the largest draw.

        Args:
            tasks: among which those that wait are probed.
            draw: task -> its drawn variance; called once for each that waits.
        """
        waiting = [
            (self._waiting[task.id][1] == 0, -draw(task), task) for task in tasks if self.is_waiting(task)
        ]
        waiting.sort(key=lambda entry: entry[:2])
        probed = [task for *_, task in waiting[: max(1, count // PROBES)]]
        least, further = divmod(count, max(1, len(probed)))
        return [task for place, task in enumerate(probed) for _ in range(least + (place < further))]

    def record(self, returns: Iterable[tuple[Task, Sequence[float]]]) -> tuple[int, list[str]]:
        """Add an iteration's returns of 0 and 1.

        Returns:
            The number of tasks that were probed, and the ids of those that are rejected.
        """
        probed, rejected = 0, []
        for task, values in returns:
            if not self.is_waiting(task):
                continue
            probed += 1
            outcomes = self._waiting[task.id]
            outcomes[0] += sum(value > 0.5 for value in values)
            outcomes[1] += len(values)
            wins, rollouts = outcomes
            if 0 < wins < rollouts:
                del self._waiting[task.id]
            elif rollouts >= MAX_ALIKE:
                rejected.append(task.id)
        return probed, rejected

    def forget(self, task_id: str) -> None:
        """Forget a task that was removed."""
        self._waiting.pop(task_id, None)

    def state_dict(self) -> dict[str, list[int]]:
        """The counts as plain JSON values."""
        return {task_id: list(outcomes) for task_id, outcomes in self._waiting.items()}

    def load_state_dict(self, state: dict[str, list[int]]) -> None:
        """Continue from a `state_dict`."""
        self._waiting = {task_id: list(outcomes) for task_id, outcomes in state.items()}
