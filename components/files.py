"""Files: written in one step (never half old, half new), read with a limit of size, and strict JSON."""

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
"""The largest of ours, the record of a stage with an hour's curves, has a few million."""


def write_text(path: Path, text: str) -> None:
    """Write beside, flush to the disk and rename. Raises DataError if the disk refuses; an old file then
    stays whole.
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
    """`write_text` of strict, sorted JSON: a NaN in `value` is a ValueError, not a file that others cannot
    read.
    """
    write_text(path, json.dumps(value, indent=2, sort_keys=True, allow_nan=False) + "\n")


def sync_directory(directory: Path) -> None:
    """Flush a directory's entries, so that a rename in it survives a power cut."""
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def sync_tree(path: Path) -> None:
    """Flush a file, or all files and directories below a directory."""
    if path.is_file():
        with path.open("rb") as file:
            os.fsync(file.fileno())
        return
    for parent, _, names in os.walk(path):
        for name in names:
            sync_tree(Path(parent, name))
        sync_directory(Path(parent))


def cannot_write(path: Path, error: OSError, needed: int = 0) -> DataError:
    """What to tell the user when the disk refuses to write `path`. Args: needed: its bytes, if they are
    known.
    """
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        existing = next(parent for parent in path.absolute().parents if parent.exists())
        free = shutil.disk_usage(existing).free
        what = f"needs {needed:,} bytes" if needed else "cannot be written"
        found = (
            f"The disk is full: {path} {what}, {free:,} bytes are free. Nothing that was there before "
            "has changed."
        )
        return DataError(
            found, next_step="Free some space and type the same command again: finished stages are reused."
        )
    found = f"{path} cannot be written: {error.strerror or error}. Nothing that was there before has changed."
    return DataError(found, next_step=f"Make {path.parent} a directory that you may write to.")


def read_text(path: Path, most: int = MOST_BYTES) -> str:
    """The UTF-8 text of a file of at most `most` bytes.

    Raises:
        DataError: it is larger.
        OSError, UnicodeDecodeError: as `Path.read_text`.
    """
    with path.open("rb") as file:
        content = file.read(most + 1)
    if len(content) > most:
        wanted = "Expected the record of a run or a stage, a config, or a listing of data."
        raise DataError(
            f"{path} has more than {most:,} bytes.",
            wanted,
            f"Move it away, if it is not yours: mv {path} /tmp",
        )
    return content.decode("utf-8")


def parse_json(text: str) -> Any:
    """The value of a JSON text.

    Raises:
        ValueError: it is no JSON, or a key stands twice in one object.
    """
    return json.loads(text, object_pairs_hook=_object)


def _object(pairs: Sequence[tuple[str, Any]]) -> dict[str, Any]:
    values: dict[str, Any] = {}
    for key, value in pairs:
        if key in values:
            raise ValueError(f"the key {key!r} stands twice in one object")
        values[key] = value
    return values


def require_writable(directory: Path) -> None:
    """Raise DataError if no file can be made in `directory`, or in the nearest directory above it that
    exists.
    """
    place = next(part for part in (directory, *directory.parents) if part.exists())
    probe = place / f".dreamgym-{secrets.token_hex(4)}.tmp"
    try:
        probe.write_bytes(b"")
    except OSError as error:
        found = f"{place} cannot be written: {error.strerror or error}."
        cure = f"Make it a directory that you may write to, for example: chmod u+w {place}"
        raise DataError(found, f"A run writes to {directory}.", cure) from error
    probe.unlink(missing_ok=True)
