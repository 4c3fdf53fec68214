"""The folders and processes of browser workers: who owns them, which still run, and how they are removed.

A worker's folder holds its profile and temporary files. Its owner keeps a lock in the folder for as long as
it lives. Every process that the worker starts carries the folder's name in its environment.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import psutil

from components.environments.browser.engine.chromium import SESSIONS_FILE

FOLDER_PREFIX = "dreamgym-browser-"
"""Beginning of the name of a worker's folder."""
OWNER_VARIABLE = "DREAMGYM_BROWSER"
"""The environment variable that names the worker's folder in every process that the worker started."""
OWNER_LOCK = "owner"
"""The file in a worker's folder that its owner keeps locked as long as it lives."""


def started_by(folder: Path) -> list[psutil.Process]:
    """Return the running processes that the worker of `folder` started.

    The driver and the browser carry the folder's name in their environment. The browser's helpers overwrite
    theirs, so they are recognised by the session that the browser leads.
    """
    processes = []
    sessions = _browser_sessions(folder)
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error, OSError):
            is_ours = process.environ().get(OWNER_VARIABLE) == str(folder) or (
                "chrom" in process.name() and os.getsid(process.pid) in sessions
            )
            if is_ours and process.status() != psutil.STATUS_ZOMBIE:
                processes.append(process)
    return processes


def _browser_sessions(folder: Path) -> set[int]:
    try:
        return {int(line) for line in (folder / SESSIONS_FILE).read_text().split()}
    except (OSError, ValueError):
        return set()


def kill_remaining(find_remaining: Callable[[], list[psutil.Process]]) -> None:
    """Wait 0.1 seconds for processes that are about to end, then kill those that remain.

    Gives up after 50 rounds of 0.05 seconds.
    """
    for attempt in range(50):
        remaining = find_remaining()
        if not remaining:
            return
        if attempt >= 2:
            for process in remaining:
                with contextlib.suppress(psutil.Error):
                    process.kill()
        time.sleep(0.05)


def remove_abandoned_folders(least_age_seconds: float = 3600.0) -> None:
    """Remove folders of workers that were killed together with their owner.

    A folder is removed if it is older than `least_age_seconds`, no living owner locks it, and no process of
    its worker runs.
    """
    for folder in Path(tempfile.gettempdir()).glob(f"{FOLDER_PREFIX}*"):
        with contextlib.suppress(OSError):
            if (
                time.time() - folder.stat().st_mtime > least_age_seconds
                and not _has_living_owner(folder)
                and not started_by(folder)
            ):
                shutil.rmtree(folder, ignore_errors=True)


def _has_living_owner(folder: Path) -> bool:
    """Return whether the owner of a worker's folder lives.

    Its processes do not tell: the browser may have died, or may not have been started yet.
    """
    with contextlib.suppress(FileNotFoundError), (folder / OWNER_LOCK).open() as file:
        try:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
    return False
