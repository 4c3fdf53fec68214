"""Where an RL stage gets the tasks of each iteration from: the interface, and draws from a fixed list."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from components.policy.rollout import Rollout
from components.policy.task_draws import draw_tasks, repeat_tasks
from components.records import Task


class TaskSource(Protocol):
    """Supplies the tasks of each iteration, and receives their returns."""

    def sample(self, count: int, seed: int) -> list[Task]:
        """Return `count` tasks for an iteration, drawn with `seed`."""
        ...

    def sample_rows(self, count: int, group_size: int, seed: int) -> list[Task]:
        """Return the tasks of an iteration of `count * group_size` rollouts, one per rollout.

        The rollouts of a task follow each other; they are a group, of at most `group_size`.
        """
        ...

    def report(self, returns: dict[str, tuple[Task, list[float]]], seed: int) -> dict[str, float]:
        """Receive (task, returns of its group) by task id, and return figures to log."""
        ...

    def state_dict(self) -> dict[str, Any]:
        """Return the state that must survive a crash."""
        ...

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue from `state`."""
        ...


class EvenTasks:
    """Tasks drawn uniformly from a fixed list."""

    def __init__(self, tasks: Sequence[Task]) -> None:
        self._tasks = list(tasks)

    def sample(self, count: int, seed: int) -> list[Task]:
        """Return `count` tasks; see `draw_tasks`."""
        return draw_tasks(self._tasks, count, seed)

    def sample_rows(self, count: int, group_size: int, seed: int) -> list[Task]:
        """Return `count` tasks, each `group_size` times in succession."""
        return repeat_tasks(self.sample(count, seed), group_size)

    def report(self, returns: dict[str, tuple[Task, list[float]]], seed: int) -> dict[str, float]:
        """Return no figures: uniform draws do not depend on returns."""
        return {}

    def state_dict(self) -> dict[str, Any]:
        """Return an empty dict: there is no state."""
        return {}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Do nothing: there is no state."""


def group_by_task(rollouts: Sequence[Rollout], size: int) -> list[list[Rollout]]:
    """Return the successive rollouts of a task as a group, of at most `size`."""
    groups: list[list[Rollout]] = []
    for rollout in rollouts:
        group = groups[-1] if groups else []
        if group and len(group) < size and group[0].trajectory.task.id == rollout.trajectory.task.id:
            group.append(rollout)
        else:
            groups.append([rollout])
    return groups


def returns_by_task(groups: Sequence[Sequence[Rollout]]) -> dict[str, tuple[Task, list[float]]]:
    """Return (task, returns of its group) by task id, without empty groups: what `report` receives."""
    return {
        group[0].trajectory.task.id: (group[0].trajectory.task, [rollout.reward for rollout in group])
        for group in groups
        if group
    }
