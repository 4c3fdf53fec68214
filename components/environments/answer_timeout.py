"""A time limit for an answer of a world that plays in this process.

The limit is an alarm of the operating system in the main thread. It interrupts Python code and waiting: for a
socket, a lock, a process, a pipe. It does not interrupt a computation in C that never returns to Python.
Other threads have no limit.
"""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import FrameType

from components.errors import EnvironmentFailure

SHORTEST_SECONDS = 0.001
"""Least time of an alarm that is set again; 0 would turn it off."""


@dataclass(frozen=True)
class AnswerTimeout:
    """The longest time of one answer.

    Attributes:
        seconds: as `environment.timeout_seconds`; 0: no limit.
    """

    seconds: float = 0.0

    @contextmanager
    def within(self, call: str) -> Iterator[None]:
        """Limit the time of this block. An alarm that was set around it goes on.

        Args:
            call: what is asked of the world, for the message.

        Raises:
            EnvironmentFailure: the time is up. It is raised again after as long, if the world caught it.
        """
        remaining = signal.getitimer(signal.ITIMER_REAL)[0]
        is_main = threading.current_thread() is threading.main_thread()
        if not self.seconds or not is_main or 0 < remaining <= self.seconds:
            yield
            return

        def give_up(_number: int, _frame: FrameType | None) -> None:
            raise EnvironmentFailure(
                f"{call} had no answer after {self.seconds:g} s.",
                "Expected one in that time (environment.timeout_seconds).",
                "Mend the world, raise that limit, or put the world behind an OpenEnv server.",
            )

        handler = signal.signal(signal.SIGALRM, give_up)
        began = time.monotonic()
        _, interval = signal.setitimer(signal.ITIMER_REAL, self.seconds, self.seconds)
        try:
            yield
        finally:
            try:
                signal.setitimer(signal.ITIMER_REAL, 0)
            finally:
                signal.signal(signal.SIGALRM, handler)
                if remaining:
                    left = max(SHORTEST_SECONDS, remaining - (time.monotonic() - began))
                    signal.setitimer(signal.ITIMER_REAL, left, interval)
