"""Run a DVC command as a child process, wait for other commands, end it if it hangs, and explain its failure.

DVC itself gives up after three seconds if another command holds its lock. It waits forever for a remote that
accepts a connection and never answers.
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
from components.trajectories.dvc.pointer import POINTER, read_pointer

LOCK_WAIT_SECONDS = 120.0
TIME_LIMIT_SECONDS = 4 * 3600.0
"""Time limit of one command: much more than any transfer of this project, and less than a night."""
_LOCKED_MESSAGES = ("Unable to acquire lock", "is busy, it is being blocked by")
_NO_ANSWER_MESSAGES = (
    "Connection refused",
    "Connection reset",
    "timed out",
    "Name or service not known",
    "name resolution",
    "ot connect to",
)
"""Texts in the errors of DVC's remotes if a server does not answer."""
_REFUSED_MESSAGES = (
    "ExpiredToken",
    "InvalidToken",
    "InvalidAccessKeyId",
    "SignatureDoesNotMatch",
    "AccessDenied",
    "Forbidden",
    "Unable to locate credentials",
)
"""Texts in the errors of DVC's remotes if the credentials are missing, wrong or expired."""
_DISK_FULL_MESSAGES = ("No space left on device", "Disk quota exceeded")
_CHECKOUT_FAILED_MESSAGE = "Checkout failed for following targets"


def run_dvc(root: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run one DVC command after the other commands in this repository have ended.

    Raises:
        DataError: another command held the lock for longer than `LOCK_WAIT_SECONDS`.
        StageTimeout: the command did not end within `TIME_LIMIT_SECONDS`, and was killed.
    """
    deadline = time.monotonic() + LOCK_WAIT_SECONDS
    with exclusive_dvc_access(root, deadline):
        while True:
            done = _run_with_time_limit(root, arguments)
            if not (done.returncode and any(words in done.stderr for words in _LOCKED_MESSAGES)):
                return done
            if time.monotonic() >= deadline:
                raise _locked_error(root)
            time.sleep(0.5)


def _run_with_time_limit(root: Path, arguments: tuple[str, ...]) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "dvc", *arguments]
    environment = os.environ | {"DVC_NO_ANALYTICS": "1", "LC_ALL": "C.UTF-8"}
    deadline = time.monotonic() + TIME_LIMIT_SECONDS
    with subprocess.Popen(
        command,
        cwd=root,
        env=environment,
        text=True,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as child:
        try:
            while True:
                # Short waits, because a stage's time limit cannot interrupt a thread that sleeps.
                with suppress(subprocess.TimeoutExpired):
                    output, errors = child.communicate(timeout=1.0)
                    return subprocess.CompletedProcess(command, child.returncode, output, errors)
                if time.monotonic() >= deadline:
                    raise _timeout_error(root, " ".join(arguments))
        except BaseException:
            _kill_tree(child.pid)
            raise


def _kill_tree(pid: int) -> None:
    """Kill a process and its descendants: one that stayed would hold the pipes and DVC's lock."""
    with suppress(psutil.NoSuchProcess):
        parent = psutil.Process(pid)
        for process in (*parent.children(recursive=True), parent):
            with suppress(psutil.NoSuchProcess):
                process.kill()


def _timeout_error(root: Path, command: str) -> StageTimeout:
    problem = f"`dvc {command}` had not ended after {TIME_LIMIT_SECONDS / 3600:g} hours and was stopped."
    return StageTimeout(
        problem, "Expected its remote to answer.", f"Type it in {root.absolute()} to see where it waits."
    )


@contextmanager
def exclusive_dvc_access(root: Path, deadline: float | None = None) -> Iterator[None]:
    """Hold this project's own lock around DVC commands, so that they queue instead of failing on DVC's lock.

    Args:
        deadline: time of `time.monotonic` until which it waits; None for `LOCK_WAIT_SECONDS` from now.

    Raises:
        DataError: another process held the lock until the deadline.
    """
    deadline = time.monotonic() + LOCK_WAIT_SECONDS if deadline is None else deadline
    folder = root / ".dvc" / "tmp"
    if not folder.parent.is_dir():
        yield  # `dvc init` refuses a .dvc that exists
        return
    folder.mkdir(exist_ok=True)
    with (folder / "dreamgym.lock").open("w") as file:
        while not _try_lock(file):
            if time.monotonic() >= deadline:
                raise _locked_error(root)
            time.sleep(0.1)
        yield


def _try_lock(file: IO[str]) -> bool:
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _locked_error(root: Path) -> DataError:
    return DataError(
        f"Another process has held DVC's lock in {root.absolute()} for {LOCK_WAIT_SECONDS:g} s.",
        next_step="Wait for it, or stop it (`ps aux | grep dvc` shows it), then type the same again.",
    )


def command_error(root: Path, command: str, stderr: str, size: int = 0) -> DreamGymError:
    """The error for a DVC command that failed.

    Args:
        stderr: what the command printed.
        size: number of bytes that it had to write.
    """
    free = shutil.disk_usage(root).free
    # A checkout does not mention that the disk is full.
    has_no_room = _CHECKOUT_FAILED_MESSAGE in stderr and free < size
    if has_no_room or disk_is_full(stderr):
        return DataError(
            f"The disk is full: `dvc {command}` found no space, {free:,} bytes are free. data.dvc is "
            "unchanged.",
            next_step="Free some space (`dvc gc --workspace --all-experiments` removes versions that no run "
            "made) and type the same again.",
        )
    if is_refused(stderr):
        return DataError(
            f"The remote refused the credentials of `dvc {command}`: {reason_of(stderr)}",
            "Expected some that may read and write there, and that have not expired.",
            "Renew them (of an s3:// remote: the variables AWS_*, or ~/.aws/credentials), then type the same "
            "again: what was transferred stays there.",
        )
    error_type = ServiceUnreachable if is_unreachable(stderr) else DataError
    return error_type(
        f"`dvc {command}` failed: {reason_of(stderr)}",
        next_step=f"Type it in {root.absolute()} to see its whole output.",
    )


def disk_is_full(stderr: str) -> bool:
    """True if a command ended because the disk is full."""
    return any(words in stderr for words in _DISK_FULL_MESSAGES)


def is_refused(stderr: str) -> bool:
    """True if a command ended because a remote refused its credentials."""
    errors = [line for line in stderr.splitlines() if line.startswith("ERROR: ")]
    return any(words in line for line in errors for words in _REFUSED_MESSAGES)


def is_unreachable(message: str) -> bool:
    """True if a command ended because a server does not answer."""
    return any(words in message for words in _NO_ANSWER_MESSAGES)


def reason_of(stderr: str) -> str:
    """DVC's ERROR lines, each with the paths listed below it."""
    reasons: list[list[str]] = []
    for line in stderr.splitlines():
        if line.startswith("ERROR: "):
            reasons.append([line.removeprefix("ERROR: ")])
        elif reasons and line.startswith("/"):
            reasons[-1].append(line)
    return "; ".join(" ".join(lines) for lines in reasons) or stderr.strip()[-300:] or "it gives no reason"


def run_checked(root: Path, *arguments: str) -> str:
    """The standard output of one DVC command.

    Raises:
        DataError, ServiceUnreachable: the command failed; the message has DVC's reason.
    """
    done = run_dvc(root, *arguments)
    if done.returncode:
        size = sum(out.size for out in read_pointer(root / POINTER)) if arguments[0] == "checkout" else 0
        raise command_error(root, " ".join(arguments), done.stderr, size)
    return done.stdout
