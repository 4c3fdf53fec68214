"""Parquet files of tasks and transitions: one row per record, in the given order, with explicit columns.

Identical records give identical bytes (`parquet_file.py`). The layout of `data/<environment>/` is
`DataLayout`.
"""

from __future__ import annotations

import dataclasses
import os
from collections import Counter, deque
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import chain, islice
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from components.errors import DataError
from components.records import Task, Trajectory, Transition
from components.trajectories.columns import examine
from components.trajectories.parquet_file import (
    RECOVERY_ADVICE,
    SHARD_ROWS,
    iter_batches,
    parquet_bytes,
    write_bytes,
    write_shards,
)
from components.trajectories.rows import iter_rows

_TYPES = {"step": pa.int64(), "reward": pa.float64(), "done": pa.bool_(), "outcome_known": pa.bool_()}
"""Column -> Arrow type; all other columns are text."""


def _defaults(record: type) -> dict[str, Any]:
    """Field -> default value. A column without any value stands for the default."""
    return {
        field.name: field.default
        for field in dataclasses.fields(record)
        if field.default is not dataclasses.MISSING
    }


def _schema(record: type) -> pa.Schema:
    return pa.schema(
        [(field.name, _TYPES.get(field.name, pa.string())) for field in dataclasses.fields(record)]
    )


TASK_SCHEMA = _schema(Task)
TRANSITION_SCHEMA = _schema(Transition)
TASK_DEFAULTS = _defaults(Task)
TRANSITION_DEFAULTS = _defaults(Transition)
DATA = "data"
"""Name of the versioned directory."""


@dataclass(frozen=True)
class DataLayout:
    """Paths of one environment's versioned data: tasks, trajectories, replay log, backbone."""

    root: Path

    @classmethod
    def of(cls, repository: Path, environment: str) -> DataLayout:
        """The layout below `data/<environment>/` of `repository`."""
        return cls(repository / DATA / environment)

    def tasks(self, name: str) -> Path:
        """File of the tasks of `train`, `fidelity` or `test`."""
        return self.root / "tasks" / f"{name}.parquet"

    def trajectories(self, name: str) -> Path:
        """Table of the offline transitions of the `train` or `fidelity` tasks; of `test` in imported data."""
        return self.root / "trajectories" / f"{name}.parquet"

    @property
    def settings(self) -> Path:
        """File of the settings with which the games and the episodes were made."""
        return self.root / "settings.json"

    @property
    def description(self) -> Path:
        """Text file that says what world imported logs are of: their most frequent system message."""
        return self.root / "description.txt"

    @property
    def replay(self) -> Path:
        """Directory of the append-only replay log."""
        return self.root / "replay"

    @property
    def backbone(self) -> Path:
        """Directory of the pretrained backbone and its tokenizer."""
        return self.root / "backbone"

    @property
    def shipped_model(self) -> Path:
        """Directory of the experience model that comes with the data, for commands before the first run."""
        return self.root.parent / "experience_models" / self.root.name


def write_tasks(path: Path, tasks: Iterable[Task]) -> None:
    """Write `tasks` in the given order and replace `path` atomically.

    Raises:
        DataError: it cannot be written.
    """
    write_bytes(path, encode_records(path, tasks, TASK_SCHEMA), os.replace)


def read_tasks(path: Path) -> list[Task]:
    """The tasks of `path`.

    Raises:
        DataError: the file is missing, damaged, empty or has other columns.
    """
    return [Task(*row) for row in iter_rows(path, TASK_SCHEMA, TASK_DEFAULTS)]


def write_transitions(
    path: Path, transitions: Iterable[Transition], *, unknown_outcomes: bool | None = None
) -> None:
    """Write `transitions` in the given order and replace `path`; more than `SHARD_ROWS` as several files.

    Args:
        unknown_outcomes: whether an outcome among them is unknown. Only then has the table the column
            `outcome_known`: all other data keep their bytes. None: look. An iterator is taken in shards if
            this is given, so that its transitions need not all be in memory.

    Raises:
        DataError: it cannot be written.
    """
    if unknown_outcomes is None:
        transitions = list(transitions)
        unknown_outcomes = has_unknown_outcomes(transitions)
    schema = written_schema(unknown_outcomes)
    rows = iter(transitions)
    shards = iter(lambda: list(islice(rows, SHARD_ROWS)), [])
    contents = (encode_records(path, shard, schema) for shard in chain([next(shards, [])], shards))
    write_shards(path, contents)


def has_unknown_outcomes(transitions: Iterable[Transition]) -> bool:
    """Whether one of the transitions is of an episode with an unknown outcome."""
    return not all(transition.outcome_known for transition in transitions)


def written_schema(unknown_outcomes: bool) -> pa.Schema:
    """The columns of a new table of transitions, as `write_transitions` has them."""
    names = [name for name in TRANSITION_SCHEMA.names if unknown_outcomes or name != "outcome_known"]
    return pa.schema([TRANSITION_SCHEMA.field(name) for name in names])


def iter_transitions(path: Path, may_be_empty: bool = False) -> Iterator[Transition]:
    """Yield the transitions of `path` in their order. The memory does not grow with their number.

    Raises:
        DataError: the file is missing, damaged, empty although `may_be_empty` is False, or has other columns.
            Transitions before the error were yielded.
    """
    rows = iter_rows(path, TRANSITION_SCHEMA, TRANSITION_DEFAULTS, may_be_empty)
    return (Transition(*row) for row in rows)


def read_transitions(path: Path) -> list[Transition]:
    """The transitions of `path`.

    Raises:
        DataError: the file is missing, damaged, empty or has other columns.
    """
    return list(iter_transitions(path))


def held_out(layout: DataLayout) -> set[str]:
    """Ids of the tasks on which no model may be trained: those of the fidelity set and of the test split.

    Raises:
        DataError: a file of these tasks is missing.
    """
    return {task.id for name in ("fidelity", "test") for task in read_tasks(layout.tasks(name))}


def iter_episodes(tasks: Iterable[Task], path: Path) -> Iterator[Trajectory]:
    """Yield the episodes of a table of transitions, in the order of their first appearance.

    The rows are read in batches, and an episode is yielded once its last row is read. So those that have
    begun and not ended are in memory, besides the number of rows of each episode, for which the column of
    ids is read first. Rows of several episodes may alternate, and steps may be in any order, as for
    `trajectories`. Then an episode waits for the ends of all that began before it.

    Raises:
        DataError: as `read_transitions` and `trajectories`. Episodes before the error were yielded.
    """
    return _whole_episodes(tasks, iter_transitions(path), _episode_lengths(path))


def trajectories(tasks: Iterable[Task], transitions: Iterable[Transition]) -> list[Trajectory]:
    """Group transitions into episodes, in the order of their first appearance, each sorted by step.

    Raises:
        DataError: a task is unknown, an episode has two tasks, or its steps are not 0, 1, 2 ...
    """
    transitions = list(transitions)
    lengths = Counter(transition.episode_id for transition in transitions)
    return list(_whole_episodes(tasks, transitions, lengths))


def _episode_lengths(path: Path) -> Counter[str]:
    """Number of rows of each episode. It is empty if ids cannot be read, which `iter_rows` reports."""
    lengths: Counter[str] = Counter()
    schema = pa.schema([TRANSITION_SCHEMA.field("episode_id")])
    for batch in iter_batches(path, schema.names):
        columns, problems = examine(pa.Table.from_batches([batch]), schema, {})
        if problems:
            return Counter()
        for counted in pc.value_counts(columns.table.column(0)).to_pylist():
            lengths[counted["values"]] += counted["counts"]
    return lengths


def _whole_episodes(
    tasks: Iterable[Task], transitions: Iterable[Transition], lengths: Mapping[str, int]
) -> Iterator[Trajectory]:
    """Yield each episode once it has as many transitions as `lengths` says, in the order of their begins."""
    tasks_by_id = {task.id: task for task in tasks}
    begun: dict[str, list[Transition]] = {}
    order: deque[str] = deque()
    for transition in transitions:
        episode_id = transition.episode_id
        if episode_id not in begun:
            begun[episode_id] = []
            order.append(episode_id)
        begun[episode_id].append(transition)
        while order and len(begun[order[0]]) == lengths[order[0]]:
            first = order.popleft()
            yield _trajectory(tasks_by_id, first, begun.pop(first))


def _trajectory(tasks_by_id: dict[str, Task], episode_id: str, steps: list[Transition]) -> Trajectory:
    steps = sorted(steps, key=lambda transition: transition.step)
    task_ids = sorted({transition.task_id for transition in steps})
    if len(task_ids) > 1:
        raise DataError(
            f"Episode {episode_id} has transitions of the tasks {', '.join(task_ids)}.",
            "Expected one task.",
            RECOVERY_ADVICE,
        )
    if task_ids[0] not in tasks_by_id:
        raise DataError(
            f"Episode {episode_id} plays the unknown task {task_ids[0]!r}.",
            f"Expected one of {len(tasks_by_id)} tasks.",
            "Read the tasks that were written with these transitions, or type `dreamgym collect`.",
        )
    step_numbers = [transition.step for transition in steps]
    if step_numbers != list(range(len(steps))):
        raise DataError(
            f"Episode {episode_id} has the steps {step_numbers}.",
            f"Expected 0 to {len(steps) - 1}, each once.",
            "Type `dreamgym validate` to set such episodes aside.",
        )
    return Trajectory(tasks_by_id[task_ids[0]], tuple(steps))


def encode_records(path: Path, records: Iterable[Any], schema: pa.Schema) -> bytes:
    """The bytes of the Parquet file of `records`, which depend only on them and on the pyarrow version.

    Args:
        path: the file, for messages.

    Raises:
        DataError: a value does not fit its column.
    """
    records = list(records)
    try:
        columns = [
            pa.array([getattr(record, field.name) for record in records], type=field.type) for field in schema
        ]
    except (pa.ArrowException, UnicodeEncodeError, TypeError) as error:
        raise DataError(
            f"A record cannot be written to {path}: {error}",
            next_step="Correct the code that makes the record.",
        ) from None
    return parquet_bytes(pa.Table.from_arrays(columns, schema=schema))
