"""Tasks of one of several worlds, as tasks of all of them together, and back.

A task's id is `mixed/` and its own id, its family is its world's name, and its spec holds the rest. So
what counts families counts worlds: success by world, and advantages normalised within each world.
"""

from __future__ import annotations

import json
from dataclasses import replace

from components.errors import DataError
from components.records import Task, Trajectory

NAME = "mixed"
_PREFIX = f"{NAME}/"


def mixed_task(task: Task) -> Task:
    """Return a world's own task as one of all worlds together."""
    spec = {"family": task.family, "spec": task.spec, "world": task.environment}
    if task.spec == "{}":
        spec["id"] = task.id  # the id is all that tells its world's tasks apart
    return replace(
        task,
        id=_PREFIX + task.id,
        environment=NAME,
        family=task.environment,
        spec=json.dumps(spec, sort_keys=True),
        parent=_PREFIX + task.parent if task.parent else "",
    )


def own_task(task: Task) -> Task:
    """Return the task as its world made it.

    Raises:
        DataError: it is no task of several worlds.
    """
    try:
        spec = json.loads(task.spec)
        world, family, own_spec = spec["world"], spec["family"], spec["spec"]
    except (ValueError, TypeError, KeyError):
        raise DataError(
            f"The task {task.id} names no world.", f"Expected a task of the environment {NAME}."
        ) from None
    return replace(
        task,
        id=task.id.removeprefix(_PREFIX),
        environment=world,
        family=family,
        spec=own_spec,
        parent=task.parent.removeprefix(_PREFIX),
    )


def own_trajectory(trajectory: Trajectory) -> Trajectory:
    """Return the episode with its task as its world made it."""
    return replace(trajectory, task=own_task(trajectory.task))
