"""Files: written in one step or line by line, read with a limit of size, and strict JSON."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import secrets
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from components.errors import DataError

MOST_BYTES = 256 * 2**20
"""Most bytes of a text file. The largest of ours, a stage's record with curves, has a few million."""


def write_text(path: Path, text: str) -> None:
    """Write `text` to `path` in one step: to a temporary file, flushed to the disk and renamed.

    Raises:
        DataError: the disk refuses; an old file stays whole.
    """
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(4)}.tmp")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with temporary.open("w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
        sync_directory(path.parent)
    except OSError as error:
        raise cannot_write(path, error) from error
    finally:
        with contextlib.suppress(OSError):
            temporary.unlink()


def write_json(path: Path, value: Any) -> None:
    """Write strict JSON with sorted keys in one step (`write_text`).

    Raises:
        DataError: the disk refuses.
        ValueError: `value` contains NaN or infinity, which other programs cannot read.
    """
    write_text(path, json.dumps(value, indent=2, sort_keys=True, allow_nan=False) + "\n")


def append_line(path: Path, line: str) -> None:
    """Add a line to `path` and flush it to the disk. An interruption may leave a part of it, without its end.

    Raises:
        DataError: the disk refuses.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("a", encoding="utf-8") as file:
            file.write(f"{line}\n")
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        raise cannot_write(path, error) from error


def sync_directory(directory: Path) -> None:
    """Flush the entries of a directory to the disk, so that a rename in it survives a power failure."""
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def sync_tree(path: Path) -> None:
    """Flush a file to the disk, or all files and directories below a directory."""
    if path.is_file():
        with path.open("rb") as file:
            os.fsync(file.fileno())
        return
    for parent, _, names in os.walk(path):
        for name in names:
            sync_tree(Path(parent, name))
        sync_directory(Path(parent))


def cannot_write(path: Path, error: OSError, needed: int = 0) -> DataError:
    """The error for a file that the disk refuses to write.

    Args:
        path: the file.
        error: what the system raised.
        needed: size of the file in bytes; 0 if unknown.
    """
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        existing = next(parent for parent in path.absolute().parents if parent.exists())
        free = shutil.disk_usage(existing).free
        problem = f"needs {needed:,} bytes" if needed else "cannot be written"
        return DataError(
            f"The disk is full: {path} {problem}, {free:,} bytes are free. Nothing that was there before "
            "has changed.",
            next_step="Free some space and type the same command again: finished stages are reused.",
        )
    return DataError(
        f"{path} cannot be written: {error.strerror or error}. Nothing that was there before has changed.",
        next_step=f"Make {path.parent} a directory that you may write to.",
    )


def read_text(path: Path, most: int = MOST_BYTES) -> str:
    """The UTF-8 text of a file of at most `most` bytes.

    Raises:
        DataError: the file is larger.
        OSError: the file cannot be read.
        UnicodeDecodeError: it is not UTF-8.
    """
    with path.open("rb") as file:
        content = file.read(most + 1)
    if len(content) > most:
        raise DataError(
            f"{path} has more than {most:,} bytes.",
            "Expected the record of a run or a stage, a config, or a listing of data.",
            f"Move it away, if it is not yours: mv {path} /tmp",
        )
    return content.decode("utf-8")


def parse_json(text: str) -> Any:
    """The value of a JSON text.

    Raises:
        ValueError: it is not JSON, or a key occurs twice in one object.
    """
    return json.loads(text, object_pairs_hook=_object_with_unique_keys)


def _object_with_unique_keys(pairs: Sequence[tuple[str, Any]]) -> dict[str, Any]:
    """The pairs as a dict. Raises ValueError if a key occurs twice."""
    values: dict[str, Any] = {}
    for key, value in pairs:
        if key in values:
            raise ValueError(f"the key {key!r} stands twice in one object")
        values[key] = value
    return values


def require_writable(directory: Path) -> None:
    """Raise DataError if no file can be created in `directory`, or in its nearest existing parent."""
    existing = next(part for part in (directory, *directory.parents) if part.exists())
    probe = existing / f".dreamgym-{secrets.token_hex(4)}.tmp"
    try:
        probe.write_bytes(b"")
    except OSError as error:
        raise DataError(
            f"{existing} cannot be written: {error.strerror or error}.",
            f"A run writes to {directory}.",
            f"Make it a directory that you may write to, for example: chmod u+w {existing}",
        ) from error
    probe.unlink(missing_ok=True)
