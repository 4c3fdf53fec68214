"""Files that are either the old ones or the new ones, never half of each, whatever happens while they are
written.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import secrets
import shutil
from pathlib import Path
from typing import Any

from components.errors import DataError


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
