"""Rows of Hugging Face datasets on disk as records with messages: `--as datasets`.

A directory is one that `save_to_disk` wrote, of a dataset or of several splits, or one with Parquet files, as
the hub has them; a file is Parquet. Each row is a record as in JSON Lines: its column `messages` (or another
of those names) holds the conversation.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as parquet

from components.errors import DataError

BATCH_ROWS = 256


def dataset_rows(path: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    """Return (place, record) of each row, read in batches.

    Raises:
        DataError: `path` is neither such a directory nor a Parquet file, or it is damaged.
    """
    try:
        batches = _of_directory(path) if path.is_dir() else _of_file(path)
        for name, batch, start in batches:
            for number, row in enumerate(batch.to_pylist()):
                yield f"{name}:{start + number}", _without_nulls(row)
    except (OSError, ValueError, pa.ArrowException) as error:
        raise DataError(
            f"{path} cannot be read as a dataset: {error}.",
            "Expected a directory of `Dataset.save_to_disk`, or a Parquet file.",
            "Write it again with `dataset.save_to_disk(DIRECTORY)`.",
        ) from error


def _of_file(path: Path) -> Iterator[tuple[str, pa.RecordBatch, int]]:
    start = 0
    for batch in parquet.ParquetFile(path).iter_batches(BATCH_ROWS):
        yield path.name, batch, start
        start += len(batch)


def _of_directory(path: Path) -> Iterator[tuple[str, pa.RecordBatch, int]]:
    from datasets import Dataset, load_from_disk

    files = sorted(path.rglob("*.parquet"))
    if files:
        for file in files:
            yield from _of_file(file)
        return
    loaded = load_from_disk(str(path))
    parts = {path.name: loaded} if isinstance(loaded, Dataset) else dict(loaded)
    for name, dataset in parts.items():
        start = 0
        for table in dataset.with_format("arrow").iter(BATCH_ROWS):
            for batch in table.to_batches():
                yield name, batch, start
                start += len(batch)


def _without_nulls(value: Any) -> Any:
    """Return the value without the null fields that Arrow adds to structures of different messages."""
    if isinstance(value, dict):
        return {name: _without_nulls(item) for name, item in value.items() if item is not None}
    if isinstance(value, list):
        return [_without_nulls(item) for item in value]
    return value
