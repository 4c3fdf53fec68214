"""The append-only replay log: a directory of numbered Parquet files (shards) of transitions."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from pathlib import Path

from components.errors import DataError
from components.records import Transition
from components.trajectories.parquet_file import write_bytes
from components.trajectories.store import (
    encode_records,
    has_unknown_outcomes,
    iter_transitions,
    written_schema,
)

_SHARD_NAME = re.compile(r"(\d{5,})-(.+)\.parquet")


def append_transitions(log_dir: Path, transitions: Iterable[Transition], shard_name: str) -> Path:
    """Append one shard, `<number>-<shard_name>.parquet`, and return its path. No shard is ever rewritten.

    The number counts the shards, so that their names sort in the order of appending. Without transitions it
    writes an empty shard, which records that this append took place.

    Raises:
        DataError: a shard of that name exists, the name is not a plain file name, or the disk refuses.
    """
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]*", shard_name):
        raise DataError(
            f"The shard name {shard_name!r} is not a plain file name.",
            "Expected letters, digits, '.', '_' and '-'.",
        )
    numbers = [0]
    for shard in log_dir.glob("*.parquet"):
        match = _SHARD_NAME.fullmatch(shard.name)
        if match and match[2] == shard_name:
            raise _shard_exists_error(shard)
        numbers += [int(match[1])] if match else []
    path = log_dir / f"{max(numbers) + 1:05d}-{shard_name}.parquet"
    transitions = list(transitions)
    schema = written_schema(has_unknown_outcomes(transitions))
    write_bytes(path, encode_records(path, transitions, schema), _link_new)
    return path


def append_once(log_dir: Path, transitions: Iterable[Transition], shard_name: str) -> None:
    """Append one shard, unless the log has one of that name: work that was interrupted is done again.

    Raises:
        DataError: as `append_transitions`.
    """
    if not any(shard.stem.endswith(shard_name) for shard in log_dir.glob("*.parquet")):
        append_transitions(log_dir, transitions, shard_name)


def read_log(log_dir: Path, shards: int | None = None) -> list[Transition]:
    """The transitions of the log, the oldest first; empty if there is no log.

    Args:
        shards: read only that many shards from the beginning; None for all.

    Raises:
        DataError: a shard is damaged.
    """
    return _read(sorted(log_dir.glob("*.parquet"))[:shards])


def read_shard(log_dir: Path, number: int) -> list[Transition]:
    """The transitions of one shard of the log, counted from 0 in the order of appending.

    Raises:
        DataError: the shard is damaged.
    """
    return _read(sorted(log_dir.glob("*.parquet"))[number : number + 1])


def _read(paths: Iterable[Path]) -> list[Transition]:
    return [step for path in paths for step in iter_transitions(path, may_be_empty=True)]


def _link_new(temporary: Path, path: Path) -> None:
    """Give the file its final name, unless another process has just used that name."""
    try:
        os.link(temporary, path)
    except FileExistsError:
        raise _shard_exists_error(path) from None


def _shard_exists_error(shard: Path) -> DataError:
    return DataError(
        f"The replay log already has {shard}.",
        "A shard is never rewritten.",
        "Give the new shard another name.",
    )
