"""Processes that carry a variable in their environment: all that a command started, and what is left of
it.
"""

from __future__ import annotations

import time

import psutil

VARIABLE = "DREAMGYM_TEST_MARK"


def marked(value: str) -> dict[int, str]:
    """Process id -> command line of what was started with VARIABLE set to `value`."""
    found = {}
    for process in psutil.process_iter():
        try:
            if process.environ().get(VARIABLE) == value and process.status() != psutil.STATUS_ZOMBIE:
                found[process.pid] = " ".join(process.cmdline())
        except (psutil.Error, OSError):
            continue
    return found


def left_after(value: str, seconds: float) -> dict[int, str]:
    """What is still there when `seconds` are over; empty as soon as nothing is."""
    deadline = time.monotonic() + seconds
    while (found := marked(value)) and time.monotonic() < deadline:
        time.sleep(0.2)
    return found
