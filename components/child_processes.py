"""No child process outlives the command that started it, also when that command is killed with SIGKILL.

`watch_over_children` starts a small watching process. Every child inherits an environment variable with this
process's mark, whoever starts it: a worker, DVC, Prefect's temporary server, a browser's driver. When this
process is gone, the watcher sends SIGTERM to all processes that carry the mark, and SIGKILL after
`GRACE_SECONDS`. `end_with_parent` works from the other side: a worker, or a process of a distributed launch,
ends when its parent does.

PR_SET_PDEATHSIG would not do: the kernel binds it to the thread that started the child, and a flow starts
workers from many threads. This file is also the watcher's program: it imports the standard library alone
until the watched process is gone.
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
"""The variable that every process has which a command started: `<process id>-<random>` of the command."""
POLL_SECONDS, GRACE_SECONDS, LIMIT_SECONDS = 0.5, 3.0, 30.0
_watchers: dict[int, subprocess.Popen[bytes]] = {}
_watching_parent: set[int] = set()


def watch_over_children() -> None:
    """Start this process's watcher, once. It ends without acting when this process exits by itself.

    Worker processes of `multiprocessing` get none: they are children of a watched process.
    """
    if os.getpid() in _watchers or multiprocessing.parent_process() is not None:
        return
    environment = {name: value for name, value in os.environ.items() if name != MARK}
    mark = f"{os.getpid()}-{secrets.token_hex(8)}"
    os.environ[MARK] = mark
    # In a session of its own: a signal to the command's process group does not reach the watcher.
    command = [sys.executable, "-I", str(Path(__file__).resolve()), str(os.getpid()), mark]
    nothing = subprocess.DEVNULL
    watcher = subprocess.Popen(
        command,
        env=environment,
        cwd="/",
        start_new_session=True,
        stdin=nothing,
        stdout=nothing,
        stderr=nothing,
    )
    _watchers[os.getpid()] = watcher
    atexit.register(_dismiss, watcher, os.getpid())


def _dismiss(watcher: subprocess.Popen[bytes], owner: int) -> None:
    """End the watcher at the normal exit of its owner, not of a process that was forked from it."""
    if os.getpid() == owner:
        watcher.kill()
        watcher.wait()


def end_with_parent(poll_seconds: float = 1.0) -> None:
    """Kill this process within `poll_seconds` after its parent has ended; a second call changes nothing."""
    if os.getpid() in _watching_parent:
        return
    _watching_parent.add(os.getpid())
    known = multiprocessing.parent_process()
    parent = os.getppid() if known is None or known.pid is None else known.pid

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(poll_seconds)
        os.kill(os.getpid(), signal.SIGKILL)

    threading.Thread(target=watch, daemon=True, name="end-with-parent").start()


def _watch(process: int, mark: str) -> None:
    """The watcher's life: wait until its parent is no longer `process`, then end what carries the mark."""
    while os.getppid() == process:
        time.sleep(POLL_SECONDS)
    began = time.monotonic()
    while time.monotonic() < began + LIMIT_SECONDS:
        late = time.monotonic() > began + GRACE_SECONDS
        if not _signal_marked(mark, signal.SIGKILL if late else signal.SIGTERM):
            return
        time.sleep(POLL_SECONDS)


def _signal_marked(mark: str, number: signal.Signals) -> int:
    """Signal every process that carries the mark; how many there are."""
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
    _watch(int(sys.argv[1]), sys.argv[2])
