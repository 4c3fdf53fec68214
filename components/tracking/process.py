"""The process that makes a run: whether it is still there can be asked later, on the same machine."""

from __future__ import annotations

import platform

import psutil
from pydantic import Field

from components.tracking.run_environment import Closed

CLOCK_SECONDS = 2.0
"""What a process's start may seem to move by when the machine's clock is set."""


class OwnProcess(Closed):
    """Names a process for good: ids are given again, but not at the same second."""

    host: str = Field(description="Name of the machine or container.")
    pid: int = Field(ge=1)
    started: float = Field(description="When it began, in seconds since 1970.")

    @property
    def text(self) -> str:
        """The process as a tag holds it: `HOST:ID:SECONDS`."""
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
    """The process that asks."""
    own = psutil.Process()
    return OwnProcess(host=platform.node(), pid=own.pid, started=own.create_time())


def is_dead(process: OwnProcess) -> bool:
    """True if it was one of this machine and is gone; of another machine's nothing is known."""
    if process.host != platform.node():
        return False
    try:
        found = psutil.Process(process.pid)
        return (
            abs(found.create_time() - process.started) > CLOCK_SECONDS
            or found.status() == psutil.STATUS_ZOMBIE
        )
    except psutil.NoSuchProcess:
        return True
