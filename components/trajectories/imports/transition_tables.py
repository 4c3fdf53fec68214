"""This project's own Parquet tables from elsewhere as episodes: `--as transitions`.

    dreamgym import ../other/data/textworld --as transitions

A directory has tables of tasks in `tasks/` and of transitions in `trajectories/`, with the columns of
docs/reference/file-formats.md, by whatever program. Casts without loss are made, others refused with the
column, the row and the value (`columns.py`). Tasks are divided anew into training, fidelity and test tasks;
`family`, `spec` and `parent`, which only a live world reads, are not taken over.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from itertools import pairwise
from pathlib import Path

from components.errors import DataError
from components.records import Task, Transition
from components.trajectories.imports.logged_episode import LoggedEpisode, LoggedStep, Skipped, Unusable
from components.trajectories.imports.outcomes import OutcomeRule
from components.trajectories.imports.step_lines import GAP, NOT_FINITE
from components.trajectories.store import iter_transitions, read_tasks

TASKS, TRAJECTORIES = "tasks", "trajectories"
UNKNOWN_TASK = "an episode whose task is in no table"
TWO_TASKS = "an episode of two tasks"
OTHER_STATE = "a step that begins with another state than came back"
NOT_THE_LAST = "a step after the end of its episode"


def table_episodes(
    path: Path, rule: OutcomeRule, mask: Callable[[str], str]
) -> Iterator[LoggedEpisode | Skipped]:
    """Return the episodes of a directory of tables, in the order of their first rows.

    By default an episode is a success if its rewards add up to one or more, else a failure.

    Raises:
        DataError: a folder or a table is missing, or a table is damaged or has other columns.
    """
    tasks = {task.id: task for table in _tables(path, TASKS) for task in read_tasks(table)}
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
    for step, later in pairwise(steps):
        if step.next_state != later.state:
            raise Unusable(OTHER_STATE, later.state)
    rewards = [step.reward for step in steps]
    if not all(map(math.isfinite, rewards)):
        raise Unusable(NOT_FINITE, rewards)
    logged = tuple(
        LoggedStep(mask(step.thought), mask(step.action), mask(step.next_state), mask(step.reasoning))
        for step in steps
    )
    task = tasks[first.task_id]
    return LoggedEpisode(
        first.episode_id,
        place,
        "",
        mask(task.instruction),
        mask(first.state),
        logged,
        rule({"reward": math.fsum(rewards)}, logged),
        last.done,
        task.environment,
        first.behaviour,
    )
