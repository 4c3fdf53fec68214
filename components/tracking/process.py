"""Identity of the process that makes a run, so that the same machine can check later whether it is alive."""

from __future__ import annotations

import platform

import psutil
from pydantic import Field

from components.tracking.run_environment import Closed

CLOCK_TOLERANCE_SECONDS = 2.0
"""How far the recorded start of a process may shift when the machine's clock is adjusted."""


class OwnProcess(Closed):
    """A process id with its host and start time: ids are reused, but not for the same start time."""

    host: str = Field(description="Name of the machine or container.")
    pid: int = Field(ge=1)
    started: float = Field(description="Start time in seconds since 1970.")

    @property
    def text(self) -> str:
        """The process in the form of a tag: `HOST:ID:SECONDS`."""
        return f"{self.host}:{self.pid}:{self.started:.2f}"

    @classmethod
    def from_text(cls, text: str) -> OwnProcess | None:
        """The process that a tag names; None if the tag names none."""
        host, _, rest = text.partition(":")
        pid, _, started = rest.partition(":")
        try:
            return cls(host=host, pid=int(pid), started=float(started))
        except ValueError:
            return None


def this_process() -> OwnProcess:
    """The process that calls this function."""
    current = psutil.Process()
    return OwnProcess(host=platform.node(), pid=current.pid, started=current.create_time())


def is_dead(process: OwnProcess) -> bool:
    """True if the process belonged to this machine and no longer exists. False for another machine's."""
    if process.host != platform.node():
        return False
    try:
        current = psutil.Process(process.pid)
        has_other_start = abs(current.create_time() - process.started) > CLOCK_TOLERANCE_SECONDS
        return has_other_start or current.status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True
