"""One DVC command as a child process: it waits for others in the repository, is ended if it hangs, and its
failure is told.

DVC itself gives up on a held lock after three seconds, and waits for a remote that accepts a connection and
never answers without end.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO

import psutil

from components.errors import DataError, DreamGymError, ServiceUnreachable, StageTimeout

LOCK_WAIT_SECONDS = 120.0
TIME_LIMIT_SECONDS = 4 * 3600.0
"""What one command may take: far more than any transfer of this project, and less than from one night to the
next.
"""
_BUSY = ("Unable to acquire lock", "is busy, it is being blocked by")
_SILENT = (
    "Connection refused",
    "Connection reset",
    "timed out",
    "Name or service not known",
    "name resolution",
    "ot connect to",
)
"""What DVC's remotes say where nobody answers."""
_DISK_FULL = ("No space left on device", "Disk quota exceeded")
_CHECKOUT_FAILED = "Checkout failed for following targets"


def run_dvc(root: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run one DVC command, waiting for others in this repository.

    Raises:
        DataError: another one has held the lock for too long.
        StageTimeout: it has not ended after `TIME_LIMIT_SECONDS`; it is killed then.
    """
    deadline = time.monotonic() + LOCK_WAIT_SECONDS
    with alone(root, deadline):
        while True:
            done = _ended(root, arguments)
            if not (done.returncode and any(words in done.stderr for words in _BUSY)):
                return done
            if time.monotonic() >= deadline:
                raise _locked(root)
            time.sleep(0.5)


def _ended(root: Path, arguments: tuple[str, ...]) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "dvc", *arguments]
    environment = os.environ | {"DVC_NO_ANALYTICS": "1", "LC_ALL": "C.UTF-8"}
    pipes = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    deadline = time.monotonic() + TIME_LIMIT_SECONDS
    with subprocess.Popen(command, cwd=root, env=environment, text=True, **pipes) as child:  # type: ignore[call-overload]
        try:
            while True:
                with suppress(
                    subprocess.TimeoutExpired
                ):  # in short waits: the end of a stage's time reaches no thread that sleeps
                    output, errors = child.communicate(timeout=1.0)
                    return subprocess.CompletedProcess(command, child.returncode, output, errors)
                if time.monotonic() >= deadline:
                    raise _hangs(root, " ".join(arguments))
        except BaseException:
            _kill(child.pid)
            raise


def _kill(pid: int) -> None:
    """The process and all below it: one that stayed would hold the pipes open, and DVC's lock."""
    with suppress(psutil.NoSuchProcess):
        parent = psutil.Process(pid)
        for process in (*parent.children(recursive=True), parent):
            with suppress(psutil.NoSuchProcess):
                process.kill()


def _hangs(root: Path, command: str) -> StageTimeout:
    found = f"`dvc {command}` had not ended after {TIME_LIMIT_SECONDS / 3600:g} hours and was stopped."
    return StageTimeout(
        found, "Expected its remote to answer.", f"Type it in {root.absolute()} to see where it waits."
    )


@contextmanager
def alone(root: Path, deadline: float | None = None) -> Iterator[None]:
    """Hold the lock of our own DVC commands, so that they queue instead of meeting each other's locks.

    Raises:
        DataError: it was held by another process until `deadline`, by default `LOCK_WAIT_SECONDS` from now.
    """
    deadline = time.monotonic() + LOCK_WAIT_SECONDS if deadline is None else deadline
    folder = root / ".dvc" / "tmp"
    if not folder.parent.is_dir():
        yield  # `dvc init` refuses a .dvc that exists
        return
    folder.mkdir(exist_ok=True)
    with (folder / "dreamgym.lock").open("w") as file:
        while not _acquired(file):
            if time.monotonic() >= deadline:
                raise _locked(root)
            time.sleep(0.1)
        yield


def _acquired(file: IO[str]) -> bool:
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _locked(root: Path) -> DataError:
    found = f"Another process has held DVC's lock in {root.absolute()} for {LOCK_WAIT_SECONDS:g} s."
    return DataError(
        found, next_step="Wait for it, or stop it (`ps aux | grep dvc` shows it), then type the same again."
    )


def failed(root: Path, command: str, stderr: str, size: int = 0) -> DreamGymError:
    """What to tell the user of a command that failed; `size`: the bytes that it was to write."""
    free = shutil.disk_usage(root).free
    no_room = _CHECKOUT_FAILED in stderr and free < size  # all that a checkout says of a full disk
    if no_room or disk_is_full(stderr):
        found = (
            f"The disk is full: `dvc {command}` found no space, {free:,} bytes are free. data.dvc is as "
            "it was."
        )
        cure = (
            "Free some space (`dvc gc --workspace --all-experiments` drops versions that no run made) "
            "and type the same again."
        )
        return DataError(found, next_step=cure)
    kind = ServiceUnreachable if is_silence(stderr) else DataError
    return kind(
        f"`dvc {command}` failed: {reason_of(stderr)}",
        next_step=f"Type it in {root.absolute()} to see all it says.",
    )


def disk_is_full(stderr: str) -> bool:
    """True if a command ended because the disk is full."""
    return any(words in stderr for words in _DISK_FULL)


def is_silence(said: str) -> bool:
    """True if a command ended because a server does not answer now."""
    return any(words in said for words in _SILENT)


def reason_of(stderr: str) -> str:
    """DVC's ERROR lines, each with the paths that it lists below."""
    reasons: list[list[str]] = []
    for line in stderr.splitlines():
        if line.startswith("ERROR: "):
            reasons.append([line.removeprefix("ERROR: ")])
        elif reasons and line.startswith("/"):
            reasons[-1].append(line)
    return "; ".join(" ".join(lines) for lines in reasons) or stderr.strip()[-300:] or "it gives no reason"
