"""The Parquet store of tasks and transitions: one row a record, explicit columns, identical bytes for
identical records.

Rows keep the order they are given in. No time stamp and no pandas metadata is written, so regenerated data
has the same DVC hash. A file is written beside its place and renamed, so that a reader never sees half of
one. Pages carry checksums: a damaged file is an error, not other data. The layout of `data/<environment>/` is
`DataLayout`.
"""

from __future__ import annotations

import dataclasses
import os
import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from components.errors import DataError
from components.files import cannot_write
from components.records import Task, Trajectory, Transition
from components.trajectories.columns import as_record, bytes_of

_RECOVER = "Type `dvc pull` to get the versioned data back, or `dreamgym collect` to record it anew."
LARGEST_TABLE = 2 << 30
"""Bytes of a table in memory that is still read; the offline data that comes with this repository have some
ten million.
"""
_BATCH_ROWS = 1024
_TYPES = {"step": pa.int64(), "reward": pa.float64(), "done": pa.bool_()}
_SHARD = re.compile(r"(\d{5,})-(.+)\.parquet")


def _defaults(record: type) -> dict[str, Any]:
    """What a record's field is where nothing is said: a column without any value means that."""
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
TASK_DEFAULTS, TRANSITION_DEFAULTS = _defaults(Task), _defaults(Transition)


DATA = "data"
"""The versioned directory."""


@dataclass(frozen=True)
class DataLayout:
    """Where the data of one environment lie in the versioned directory: tasks, trajectories, replay log,
    backbone.
    """

    root: Path

    @classmethod
    def of(cls, repository: Path, environment: str) -> DataLayout:
        """That of `repository`: `data/<environment>/`."""
        return cls(repository / DATA / environment)

    def tasks(self, name: str) -> Path:
        """Tasks of `train`, `fidelity` or `test`."""
        return self.root / "tasks" / f"{name}.parquet"

    def trajectories(self, name: str) -> Path:
        """Offline transitions of the `train` or `fidelity` tasks."""
        return self.root / "trajectories" / f"{name}.parquet"

    @property
    def settings(self) -> Path:
        """The settings that the games and the episodes were made with."""
        return self.root / "settings.json"

    @property
    def replay(self) -> Path:
        """Directory of the append-only replay log."""
        return self.root / "replay"

    @property
    def backbone(self) -> Path:
        """Directory of the pretrained backbone and its tokenizer."""
        return self.root / "backbone"


def write_tasks(path: Path, tasks: Iterable[Task]) -> None:
    """Write `tasks` in the given order, replacing `path` in one step. Raises DataError if it cannot be
    written.
    """
    _write(path, _encode(path, tasks, TASK_SCHEMA), os.replace)


def read_tasks(path: Path) -> list[Task]:
    """The tasks of `path`. Raises DataError if the file is missing, damaged, empty or has other columns."""
    return [Task(*row) for row in _rows(path, TASK_SCHEMA, TASK_DEFAULTS)]


def write_transitions(path: Path, transitions: Iterable[Transition]) -> None:
    """Write `transitions` in the given order, replacing `path` in one step. Raises DataError if it cannot be
    written.
    """
    _write(path, _encode(path, transitions, TRANSITION_SCHEMA), os.replace)


def read_transitions(path: Path) -> list[Transition]:
    """The transitions of `path`. Raises DataError if the file is missing, damaged, empty or has other
    columns.
    """
    return [Transition(*row) for row in _rows(path, TRANSITION_SCHEMA, TRANSITION_DEFAULTS)]


def read_frame(path: Path) -> pd.DataFrame:
    """The raw table, whatever its columns, for validation. Raises DataError if it is missing, damaged or
    empty.
    """
    return read_table(path).to_pandas(ignore_metadata=True)


def read_table(path: Path, may_be_empty: bool = False) -> pa.Table:
    """The raw Arrow table, its checksums verified.

    Raises:
        DataError: the file is missing, damaged, empty and may not be, or more than `LARGEST_TABLE` bytes once
            it is unpacked.
    """
    if not path.is_file():
        raise DataError(f"There is no file {path}.", next_step=_RECOVER)
    try:
        with pq.ParquetFile(path, page_checksum_verification=True) as file:
            table = pa.Table.from_batches(_bounded(path, file), file.schema_arrow)
        table.validate(full=True)
    except (pa.ArrowException, OSError, UnicodeError) as error:
        found = (
            f"{path} ({path.stat().st_size:,} bytes) is damaged or no Parquet file: "
            f"{str(error).splitlines()[0]}"
        )
        raise DataError(found, next_step=f"Remove it. {_RECOVER}") from error
    if table.num_rows == 0 and not may_be_empty:
        raise DataError(f"{path} has no rows.", "Expected at least one.", _RECOVER)
    return table


def _bounded(path: Path, file: pq.ParquetFile) -> Iterator[pa.RecordBatch]:
    """The file's rows, as long as they stay within `LARGEST_TABLE`: a few kilobytes may unpack to more than
    there is memory.
    """
    size = 0
    for batch in file.iter_batches(_BATCH_ROWS):
        size += bytes_of(batch)
        if size > LARGEST_TABLE:
            found = f"{path} ({path.stat().st_size:,} bytes) holds more than {LARGEST_TABLE:,} bytes of rows."
            raise DataError(
                found,
                "Tables are read whole, so they must fit in memory.",
                "Split it into files of fewer episodes.",
            )
        yield batch


def write_frame(path: Path, frame: pd.DataFrame) -> None:
    """Write a table of any columns, such as rows set aside, replacing `path` in one step. Raises DataError if
    it cannot be.
    """
    _write(
        path, _bytes(pa.Table.from_pandas(frame, preserve_index=False).replace_schema_metadata()), os.replace
    )


def append_transitions(log_dir: Path, transitions: Iterable[Transition], shard_name: str) -> Path:
    """Append one shard, `<number>-<shard_name>.parquet`, to the replay log and return its path; no shard is
    ever rewritten.

    The number counts the shards, so that reading them by name is reading them in order of appending. No
    transitions make an empty shard: the log then still says that this append took place.

    Raises:
        DataError: a shard of that name exists, the name is no file name, or the disk refuses.
    """
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]*", shard_name):
        raise DataError(
            f"The shard name {shard_name!r} is no plain file name.",
            "Expected letters, digits, '.', '_' and '-'.",
        )
    numbers = [0]
    for shard in log_dir.glob("*.parquet"):
        match = _SHARD.fullmatch(shard.name)
        if match and match[2] == shard_name:
            raise _shard_exists(shard)
        numbers += [int(match[1])] if match else []
    path = log_dir / f"{max(numbers) + 1:05d}-{shard_name}.parquet"
    _write(path, _encode(path, transitions, TRANSITION_SCHEMA), _link_new)
    return path


def read_log(log_dir: Path, shards: int | None = None) -> list[Transition]:
    """The transitions of the replay log, oldest first, of its first `shards` shards alone if given; none if
    it was not begun.

    Raises:
        DataError: a damaged shard.
    """
    found = sorted(log_dir.glob("*.parquet"))[:shards]
    return [
        Transition(*row)
        for shard in found
        for row in _rows(shard, TRANSITION_SCHEMA, TRANSITION_DEFAULTS, True)
    ]


def held_out(layout: DataLayout) -> set[str]:
    """Ids of the tasks that no model may be trained on: the fidelity set's and the test split's. Raises
    DataError if they are missing.
    """
    return {task.id for name in ("fidelity", "test") for task in read_tasks(layout.tasks(name))}


def trajectories(tasks: Iterable[Task], transitions: Iterable[Transition]) -> list[Trajectory]:
    """Episodes in order of first appearance, each sorted by step.

    Raises:
        DataError: a task is unknown, an episode has two tasks, or its steps are not 0, 1, 2 ...
    """
    known = {task.id: task for task in tasks}
    episodes: dict[str, list[Transition]] = {}
    for transition in transitions:
        episodes.setdefault(transition.episode_id, []).append(transition)
    return [_trajectory(known, episode, steps) for episode, steps in episodes.items()]


def _trajectory(known: dict[str, Task], episode: str, steps: list[Transition]) -> Trajectory:
    steps = sorted(steps, key=lambda transition: transition.step)
    task_ids = sorted({transition.task_id for transition in steps})
    if len(task_ids) > 1:
        raise DataError(
            f"Episode {episode} has transitions of the tasks {', '.join(task_ids)}.",
            "Expected one task.",
            _RECOVER,
        )
    if task_ids[0] not in known:
        next_step = "Read the tasks that were written with these transitions, or type `dreamgym collect`."
        raise DataError(
            f"Episode {episode} plays the unknown task {task_ids[0]!r}.",
            f"Expected one of {len(known)} tasks.",
            next_step,
        )
    numbers = [transition.step for transition in steps]
    if numbers != list(range(len(steps))):
        found = f"Episode {episode} has the steps {numbers}."
        raise DataError(
            found,
            f"Expected 0 to {len(steps) - 1}, each once.",
            "Type `dreamgym validate` to set such episodes aside.",
        )
    return Trajectory(known[task_ids[0]], tuple(steps))


def _encode(path: Path, records: Iterable[Any], schema: pa.Schema) -> bytes:
    """The bytes of the Parquet file, which depend on the records and the pyarrow version alone."""
    records = list(records)
    try:
        columns = [
            pa.array([getattr(record, field.name) for record in records], type=field.type) for field in schema
        ]
    except (pa.ArrowException, UnicodeEncodeError, TypeError) as error:
        raise DataError(
            f"A record cannot be written to {path}: {error}", next_step="Mend the record where it is made."
        ) from None
    return _bytes(pa.Table.from_arrays(columns, schema=schema))


def _bytes(table: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    pq.write_table(table, sink, compression="zstd", store_schema=False, write_page_checksum=True)
    return sink.getvalue().to_pybytes()


def _write(path: Path, content: bytes, place: Callable[[Path, Path], None]) -> None:
    """Write beside, flush to the disk, and `place` at `path` in one step: whatever fails, an old file stays
    whole.
    """
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with temporary.open("wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        place(temporary, path)
    except OSError as error:
        raise cannot_write(path, error, len(content)) from error
    finally:
        with suppress(OSError):
            temporary.unlink()


def _link_new(temporary: Path, path: Path) -> None:
    try:
        os.link(temporary, path)
    except FileExistsError:
        raise _shard_exists(path) from None


def _shard_exists(shard: Path) -> DataError:
    return DataError(
        f"The replay log already has {shard}.",
        "A shard is never rewritten.",
        "Give the new shard another name.",
    )


def _rows(
    path: Path, schema: pa.Schema, defaults: dict[str, Any], may_be_empty: bool = False
) -> Iterable[tuple[Any, ...]]:
    """Rows in the order of the schema's columns; every value is present and of its column's type."""
    table = as_record(path, read_table(path, may_be_empty), schema, defaults).table
    nulls = [
        f"{name} ({column.null_count})"
        for name, column in zip(schema.names, table.columns, strict=True)
        if column.null_count
    ]
    if nulls:
        cure = "Fill them, or type `dreamgym validate`, which sets episodes with missing values aside."
        raise DataError(
            f"{path} has missing values in {', '.join(nulls)}.", "Expected a value in every row.", cure
        )
    return zip(*(column.to_pylist() for column in table.columns), strict=True)
