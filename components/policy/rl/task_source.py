"""Where an RL stage gets the tasks of each iteration from: the interface, and draws from a fixed list."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from components.policy.rollout import draw_tasks
from components.records import Task


class TaskSource(Protocol):
    """Supplies the tasks of each iteration, and learns their returns."""

    def sample(self, count: int, seed: int) -> list[Task]:
        """`count` tasks for an iteration."""
        ...

    def report(self, returns: dict[str, tuple[Task, list[float]]], seed: int) -> dict[str, float]:
        """Take in the returns of each task's group; returns figures to log."""
        ...

    def state_dict(self) -> dict[str, Any]:
        """State that must survive a crash."""
        ...

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue from `state`."""
        ...


class EvenTasks:
    """Tasks drawn evenly from a fixed list."""

    def __init__(self, tasks: Sequence[Task]) -> None:
        self._tasks = list(tasks)

    def sample(self, count: int, seed: int) -> list[Task]:
        """`count` tasks."""
        return draw_tasks(self._tasks, count, seed)

    def report(self, returns: dict[str, tuple[Task, list[float]]], seed: int) -> dict[str, float]:
        """An even draw learns nothing."""
        return {}

    def state_dict(self) -> dict[str, Any]:
        """No state."""
        return {}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """No state."""
