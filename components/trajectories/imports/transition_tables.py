"""This project's own Parquet tables from elsewhere as episodes: `--as transitions`.

    dreamgym import ../other/data/textworld --as transitions

A directory has tables of tasks in `tasks/` and of transitions in `trajectories/`, with the columns of
docs/reference/file-formats.md, by whatever program. Casts without loss are made, others refused with the
column, the row and the value (`columns.py`). Tasks are divided anew into training, fidelity and test tasks;
`family`, `spec` and `parent`, which only a live world reads, are not taken over, nor is who wrote a row
(`policy_version`, `run_id`). Dreamed episodes are left out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from itertools import pairwise
from pathlib import Path

from components.errors import DataError
from components.records import REAL, Task, Trajectory, Transition
from components.trajectories.imports.logged_episode import LoggedEpisode, LoggedStep, Skipped, Unusable
from components.trajectories.imports.outcomes import OutcomeRule
from components.trajectories.imports.step_lines import GAP, reward_sum
from components.trajectories.store import iter_transitions, read_tasks

TASKS, TRAJECTORIES = "tasks", "trajectories"
UNKNOWN_TASK = "an episode whose task is in no table"
TWO_TASKS = "an episode of two tasks"
OTHER_STATE = "a step that begins with another state than came back, or than its task"
DREAMED = "an episode that a dream wrote"
NOT_THE_LAST = "a step after the end of its episode"


def table_episodes(
    path: Path, rule: OutcomeRule, mask: Callable[[str], str]
) -> Iterator[LoggedEpisode | Skipped]:
    """Return the episodes of a directory of tables, in the order of their first rows.

    By default an episode is a success if its rewards add up to one or more, else a failure; one that an
    earlier import marked as of an unknown outcome stays unknown.

    Raises:
        DataError: a folder or a table is missing, or a table is damaged or has other columns.
    """
    tasks = _tasks(path)
    for table in _tables(path, TRAJECTORIES):
        episodes: dict[str, list[Transition]] = {}
        for step in iter_transitions(table, may_be_empty=True):
            episodes.setdefault(step.episode_id, []).append(step)
        for name, steps in episodes.items():
            place = f"{table.name}:{name}"
            try:
                yield _episode(tasks, sorted(steps, key=lambda step: step.step), place, rule, mask)
            except Unusable as problem:
                yield Skipped(problem.reason, place, problem.found)


def _tasks(path: Path) -> dict[str, Task]:
    """Return id -> task of all tables of tasks.

    Raises:
        DataError: as `table_episodes`, or two tasks have the same id.
    """
    tasks: dict[str, Task] = {}
    for table in _tables(path, TASKS):
        for task in read_tasks(table):
            same = tasks.setdefault(task.id, task)
            if (same.instruction, same.initial_state) != (task.instruction, task.initial_state):
                raise DataError(
                    f"{path / TASKS} has two tasks with the id {task.id!r}; the second is in {table.name}.",
                    "Expected one task for each id.",
                    "Give the tasks of each table ids of their own, also in the tables of transitions.",
                )
    return tasks


def _tables(path: Path, folder: str) -> list[Path]:
    """Return the tables below a folder: files, or directories of shards.

    Raises:
        DataError: there is none.
    """
    tables = sorted((path / folder).glob("*.parquet"))
    if not tables:
        raise DataError(
            f"{path / folder} has no Parquet table.",
            f"Expected a directory with {TASKS}/*.parquet and {TRAJECTORIES}/*.parquet, as those in data/.",
            "Name that directory. A Parquet file of conversations is read with --as datasets.",
        )
    return tables


def _episode(
    tasks: Mapping[str, Task],
    steps: list[Transition],
    place: str,
    rule: OutcomeRule,
    mask: Callable[[str], str],
) -> LoggedEpisode:
    """Return the episode of its rows in order; raises Unusable."""
    first, last = steps[0], steps[-1]
    if first.task_id not in tasks:
        raise Unusable(UNKNOWN_TASK, first.task_id)
    if {step.task_id for step in steps} != {first.task_id}:
        raise Unusable(TWO_TASKS, last.task_id)
    if [step.step for step in steps] != list(range(len(steps))):
        raise Unusable(GAP, [step.step for step in steps])
    if any(step.done for step in steps[:-1]):
        raise Unusable(NOT_THE_LAST)
    if any(step.source != REAL for step in steps):
        raise Unusable(DREAMED)
    if first.state != tasks[first.task_id].initial_state:
        raise Unusable(OTHER_STATE, first.state)
    for step, later in pairwise(steps):
        if step.next_state != later.state:
            raise Unusable(OTHER_STATE, later.state)
    logged = tuple(
        LoggedStep(mask(step.thought), mask(step.action), mask(step.next_state), mask(step.reasoning))
        for step in steps
    )
    task = tasks[first.task_id]
    is_unknown = Trajectory(task, tuple(steps)).outcome is None
    return LoggedEpisode(
        first.episode_id,
        place,
        "",
        mask(task.instruction),
        mask(first.state),
        logged,
        None if is_unknown else rule({"reward": reward_sum([step.reward for step in steps])}, logged),
        last.done,
        task.environment,
        first.behaviour,
        is_cut=is_unknown,
    )
