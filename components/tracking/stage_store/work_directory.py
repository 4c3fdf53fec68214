"""Work directories of running stages, and the locks that keep two processes out of the same one."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

from components.files import cannot_write

_OPEN_WORK_DIRECTORIES: dict[tuple[int, Path], tuple[Path, int | None]] = {}
"""(process id, lock file) -> (work directory, descriptor of the lock or None).

The descriptor is None if another process holds the lock. The process id is part of the key because a record
lock belongs to its process: worker processes do not inherit it.
"""


def work_directory(final: Path, lock: Path) -> Path:
    """The directory in which this process computes the result `final`. It is not created.

    It is `<final>.partial` if the lock is free, else a name with the process id in it. Further calls of one
    process return the same directory until `release`.

    Raises:
        DataError: the lock file cannot be written.
    """
    entry = _OPEN_WORK_DIRECTORIES.get((os.getpid(), lock))
    if entry is None:
        descriptor = _acquire(lock)
        suffix = "" if descriptor is not None else f".{os.getpid()}"
        entry = (final.with_name(f"{final.name}{suffix}.partial"), descriptor)
        _OPEN_WORK_DIRECTORIES[os.getpid(), lock] = entry
    return entry[0]


def release(lock: Path) -> None:
    """Forget this process's work directory and release its lock."""
    _, descriptor = _OPEN_WORK_DIRECTORIES.pop((os.getpid(), lock), (None, None))
    if descriptor is not None:
        os.close(descriptor)


def _acquire(lock: Path) -> int | None:
    """The descriptor of the locked file, or None if another living process holds the lock.

    The lock ends when the descriptor is closed or the process ends.
    """
    try:
        lock.parent.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(lock, os.O_RDWR | os.O_CREAT, 0o644)
    except OSError as error:
        raise cannot_write(lock, error) from error
    try:
        fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(descriptor)
        return None
    return descriptor
