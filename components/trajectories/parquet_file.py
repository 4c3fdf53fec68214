"""Read and write Parquet tables: identical bytes for identical tables, atomic writes, and verified reads.

No time stamp and no pandas metadata is written, so regenerated data has the same DVC hash. A file is written
under a temporary name and then renamed, so that a reader never sees half of it. Pages have checksums: a
damaged file is an error.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from components.errors import DataError
from components.files import cannot_write
from components.trajectories.columns import bytes_of

RECOVERY_ADVICE = "Type `dvc pull` to restore the versioned data, or `dreamgym collect` to record it again."
MAX_TABLE_BYTES = 2 << 30
"""Largest table in memory that is read. The offline data of this repository has about ten million bytes."""
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
    if not path.is_file():
        raise DataError(f"There is no file {path}.", next_step=RECOVERY_ADVICE)
    try:
        with pq.ParquetFile(path, page_checksum_verification=True) as file:
            table = pa.Table.from_batches(_bounded_batches(path, file), file.schema_arrow)
        table.validate(full=True)
    except (pa.ArrowException, OSError, UnicodeError) as error:
        problem = (
            f"{path} ({path.stat().st_size:,} bytes) is damaged or no Parquet file: "
            f"{str(error).splitlines()[0]}"
        )
        raise DataError(problem, next_step=f"Remove it. {RECOVERY_ADVICE}") from error
    if table.num_rows == 0 and not may_be_empty:
        raise DataError(f"{path} has no rows.", "Expected at least one.", RECOVERY_ADVICE)
    return table


def _bounded_batches(path: Path, file: pq.ParquetFile) -> Iterator[pa.RecordBatch]:
    """The file's rows up to `MAX_TABLE_BYTES`: a file of a few kilobytes may unpack to too many bytes."""
    size = 0
    for batch in file.iter_batches(_BATCH_ROWS):
        size += bytes_of(batch)
        if size > MAX_TABLE_BYTES:
            raise DataError(
                f"{path} ({path.stat().st_size:,} bytes) holds more than {MAX_TABLE_BYTES:,} bytes of rows.",
                "Tables are read whole, so they must fit in memory.",
                "Split it into files of fewer episodes.",
            )
        yield batch


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
