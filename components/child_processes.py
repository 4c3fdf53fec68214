"""Ends child processes with the command that started them, even if that command is killed with SIGKILL.

`watch_over_children` starts a small watcher process. Every child inherits an environment variable with this
process's mark, whoever starts it: a worker, DVC, Prefect's temporary server, a browser's driver. When this
process has ended, the watcher sends SIGTERM to all processes with the mark, and SIGKILL after
`GRACE_SECONDS`. `end_with_parent` works from the other side: a worker, or a process of a distributed launch,
ends when its parent does.

PR_SET_PDEATHSIG is no alternative: the kernel binds it to the thread that started the child, and a flow
starts workers from many threads. This file is also the watcher's program. It imports only the standard
library until the watched process has ended.
"""

from __future__ import annotations

import atexit
import multiprocessing
import os
import secrets
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

MARK = "DREAMGYM_COMMAND"
"""The variable that every process of a command has; its value is `<process id>-<random>` of the command."""
POLL_SECONDS = 0.5
GRACE_SECONDS = 3.0
"""From the command's end to SIGKILL."""
LIMIT_SECONDS = 30.0
"""After which the watcher gives up."""
_watchers: dict[int, subprocess.Popen[bytes]] = {}
_processes_watching_parent: set[int] = set()


def watch_over_children() -> None:
    """Start this process's watcher; a second call does nothing.

    The watcher ends without acting if this process exits normally. Worker processes of `multiprocessing` get
    none: they are children of a watched process.
    """
    if os.getpid() in _watchers or multiprocessing.parent_process() is not None:
        return
    environment = {name: value for name, value in os.environ.items() if name != MARK}
    mark = f"{os.getpid()}-{secrets.token_hex(8)}"
    os.environ[MARK] = mark
    # In its own session, so that a signal to the command's process group does not reach the watcher.
    watcher = subprocess.Popen(
        [sys.executable, "-I", str(Path(__file__).resolve()), str(os.getpid()), mark],
        env=environment,
        cwd="/",
        start_new_session=True,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    _watchers[os.getpid()] = watcher
    atexit.register(_stop_watcher, watcher, os.getpid())


def _stop_watcher(watcher: subprocess.Popen[bytes], owner: int) -> None:
    """Kill the watcher at the normal exit of its owner; do nothing in a process forked from the owner."""
    if os.getpid() == owner:
        watcher.kill()
        watcher.wait()


def end_with_parent(poll_seconds: float = 1.0) -> None:
    """Kill this process within `poll_seconds` after its parent has ended; a second call does nothing."""
    if os.getpid() in _processes_watching_parent:
        return
    _processes_watching_parent.add(os.getpid())
    parent_process = multiprocessing.parent_process()
    parent_id = os.getppid() if parent_process is None or parent_process.pid is None else parent_process.pid

    def watch() -> None:
        while os.getppid() == parent_id:
            time.sleep(poll_seconds)
        os.kill(os.getpid(), signal.SIGKILL)

    threading.Thread(target=watch, daemon=True, name="end-with-parent").start()


def _run_watcher(watched_id: int, mark: str) -> None:
    """Wait until the process `watched_id` is no longer the parent, then end all processes with the mark."""
    while os.getppid() == watched_id:
        time.sleep(POLL_SECONDS)
    start_time = time.monotonic()
    while time.monotonic() < start_time + LIMIT_SECONDS:
        is_grace_over = time.monotonic() > start_time + GRACE_SECONDS
        if not _signal_marked(mark, signal.SIGKILL if is_grace_over else signal.SIGTERM):
            return
        time.sleep(POLL_SECONDS)


def _signal_marked(mark: str, number: signal.Signals) -> int:
    """Send a signal to every process with the mark; returns how many there are."""
    import psutil

    count = 0
    for process in psutil.process_iter():
        try:
            if process.environ().get(MARK) == mark and process.status() != psutil.STATUS_ZOMBIE:
                process.send_signal(number)
                count += 1
        except (psutil.Error, OSError):
            continue
    return count


if __name__ == "__main__":
    _run_watcher(int(sys.argv[1]), sys.argv[2])
