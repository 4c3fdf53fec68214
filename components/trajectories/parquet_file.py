"""Read and write Parquet tables: identical bytes for identical tables, atomic writes, and verified reads.

No time stamp and no pandas metadata is written, so regenerated data has the same DVC hash. A file is written
under a temporary name and then renamed, so that a reader never sees half of it. Pages have checksums: a
damaged file is an error.

A table of more than `SHARD_ROWS` rows is a directory of files (shards) under the table's name. Rows that are
added at its end leave the shards before as they are, so DVC moves the new ones alone.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from itertools import chain
from pathlib import Path

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from components.errors import DataError
from components.files import cannot_write
from components.trajectories.columns import bytes_of

RECOVERY_ADVICE = "Type `dvc pull` to restore the versioned data, or `dreamgym collect` to record it again."
MAX_TABLE_BYTES = 2 << 30
"""Largest table that is read, unpacked. The offline data of this repository has about ten million bytes."""
SHARD_ROWS = 100_000
"""Most rows of one file."""
_BATCH_ROWS = 1024


def read_frame(path: Path) -> pd.DataFrame:
    """The raw table with all its columns, for validation.

    Raises:
        DataError: the file is missing, damaged or empty.
    """
    return read_table(path).to_pandas(ignore_metadata=True)


def read_table(path: Path, may_be_empty: bool = False) -> pa.Table:
    """The raw Arrow table, after its checksums are verified.

    Raises:
        DataError: the file is missing or damaged, is empty although `may_be_empty` is False, or has more than
            `MAX_TABLE_BYTES` bytes once it is unpacked.
    """
    table = pa.Table.from_batches(iter_batches(path), schema_of(path))
    if table.num_rows == 0 and not may_be_empty:
        raise empty_table_error(path)
    return table


def iter_batches(path: Path, columns: Sequence[str] | None = None) -> Iterator[pa.RecordBatch]:
    """The batches of a table in the order of its rows, each after its checksums are verified.

    A batch has at most `_BATCH_ROWS` rows of one file. Besides it, the compressed pages of one row group are
    in memory: `SHARD_ROWS` rows of a file that this module wrote.

    Args:
        columns: those to read; None for all.

    Raises:
        DataError: a file is missing or damaged, the files have different columns, or the batches so far have
            more than `MAX_TABLE_BYTES` bytes.
    """
    schema_of(path)
    size = 0
    for file in _files_of(path):
        with _damage_reported(file), pq.ParquetFile(file, page_checksum_verification=True) as parquet:
            for batch in parquet.iter_batches(_BATCH_ROWS, columns=columns):
                size += bytes_of(batch)
                if size > MAX_TABLE_BYTES:  # a file of a few kilobytes may unpack to too many bytes
                    raise _too_large(file)
                batch.validate(full=True)
                yield batch


def schema_of(path: Path) -> pa.Schema:
    """The columns of a table, from the footers of its files.

    Raises:
        DataError: a file is missing or damaged, or the files have different columns.
    """
    schemas = []
    for file in _files_of(path):
        with _damage_reported(file):
            schemas.append(pq.ParquetFile(file).schema_arrow)
    if any(not schema.equals(schemas[0]) for schema in schemas):
        raise DataError(
            f"The files in {path} have different columns.", "Expected shards of one table.", RECOVERY_ADVICE
        )
    return schemas[0]


def empty_table_error(path: Path) -> DataError:
    """The error for a table without rows."""
    return DataError(f"{path} has no rows.", "Expected at least one.", RECOVERY_ADVICE)


def bytes_of_table(path: Path) -> int:
    """The size of a table's files on the disk, in bytes."""
    return sum(file.stat().st_size for file in _files_of(path))


def _files_of(path: Path) -> list[Path]:
    """The files of a table in their order: `path` itself, or the shards in it."""
    if path.is_file():
        return [path]
    shards = sorted(path.glob("*.parquet"))
    if not shards:
        raise DataError(f"There is no file {path}.", next_step=RECOVERY_ADVICE)
    total = max(len(shards), int(shards[0].stem.rpartition("-")[2])) if _is_shard(shards[0]) else len(shards)
    missing = {_shard_name(number, total) for number in range(1, total + 1)} - {file.name for file in shards}
    if missing:
        raise DataError(
            f"{path} has {len(shards)} files, and {min(missing)} is not among them.",
            "Expected the shards of one table: 00001-of-00002.parquet and 00002-of-00002.parquet, for two.",
            RECOVERY_ADVICE,
        )
    return shards


def _is_shard(path: Path) -> bool:
    return re.fullmatch(r"\d{5}-of-\d{5}\.parquet", path.name) is not None


def _shard_name(number: int, total: int) -> str:
    return f"{number:05d}-of-{total:05d}.parquet"


@contextmanager
def _damage_reported(file: Path) -> Iterator[None]:
    """A block that reads `file`; what pyarrow raises there becomes a DataError."""
    try:
        yield
    except (pa.ArrowException, OSError, UnicodeError) as error:
        problem = (
            f"{file} ({file.stat().st_size:,} bytes) is damaged or no Parquet file: "
            f"{str(error).splitlines()[0]}"
        )
        raise DataError(problem, next_step=f"Remove it. {RECOVERY_ADVICE}") from error


def _too_large(path: Path) -> DataError:
    return DataError(
        f"{path} ({path.stat().st_size:,} bytes) brings its table above {MAX_TABLE_BYTES:,} bytes of rows.",
        "Validation reads a table whole, so it must fit in memory.",
        "Take fewer episodes.",
    )


def write_shards(path: Path, shards: Iterable[bytes]) -> None:
    """Write the files of a table and replace `path`: one as the file itself, several as a directory.

    A single file is replaced atomically. With several, an earlier table gets another name until the new one,
    which is complete by then, has its place.

    Args:
        shards: contents of the files, one at a time.

    Raises:
        DataError: it cannot be written.
    """
    contents = iter(shards)
    first, second = next(contents), next(contents, None)
    if second is None:
        write_bytes(path, first, move_table)
        return
    staged = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    shutil.rmtree(staged, ignore_errors=True)
    try:
        names = []
        for number, content in enumerate(chain([first, second], contents), start=1):
            names.append(staged / f"{number:05d}.parquet")
            write_bytes(names[-1], content, os.replace)
        for number, name in enumerate(names, start=1):
            name.rename(staged / _shard_name(number, len(names)))
        move_table(staged, path)
    except OSError as error:
        raise cannot_write(path, error) from error
    finally:
        shutil.rmtree(staged, ignore_errors=True)


def move_table(source: Path, target: Path) -> None:
    """Rename a table, a file or a directory of files, to `target`, and remove what was there."""
    if not (target.exists() and (source.is_dir() or target.is_dir())):
        source.replace(target)
        return
    earlier = target.with_name(f".{target.name}.{os.getpid()}.old")
    remove_table(earlier)
    target.rename(earlier)
    source.replace(target)
    remove_table(earlier)


def remove_table(path: Path) -> None:
    """Remove a table, a file or a directory of files, if it is there."""
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def write_frame(path: Path, frame: pd.DataFrame) -> None:
    """Write a table with any columns, such as quarantined rows, and replace `path` atomically.

    Raises:
        DataError: it cannot be written.
    """
    table = pa.Table.from_pandas(frame, preserve_index=False).replace_schema_metadata()
    write_bytes(path, parquet_bytes(table), os.replace)


def parquet_bytes(table: pa.Table) -> bytes:
    """The bytes of the Parquet file of a table."""
    sink = pa.BufferOutputStream()
    pq.write_table(table, sink, compression="zstd", store_schema=False, write_page_checksum=True)
    return sink.getvalue().to_pybytes()


def write_bytes(path: Path, content: bytes, move: Callable[[Path, Path], None]) -> None:
    """Write and flush a temporary file, then `move` it to `path`. A failure leaves an old file whole.

    Raises:
        DataError: the disk refuses.
    """
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with temporary.open("wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        move(temporary, path)
    except OSError as error:
        raise cannot_write(path, error, len(content)) from error
    finally:
        with suppress(OSError):
            temporary.unlink()
