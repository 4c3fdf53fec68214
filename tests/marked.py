"""Finds processes by a variable in their environment: all that a command started, and those still running."""

from __future__ import annotations

import time

import psutil

VARIABLE = "DREAMGYM_TEST_MARK"


def marked(value: str) -> dict[int, str]:
    """Return process id -> command line of all processes that have VARIABLE set to `value`."""
    commands = {}
    for process in psutil.process_iter():
        try:
            if process.environ().get(VARIABLE) == value and process.status() != psutil.STATUS_ZOMBIE:
                commands[process.pid] = " ".join(process.cmdline())
        except (psutil.Error, OSError):
            continue
    return commands


def left_after(value: str, seconds: float) -> dict[int, str]:
    """Return the processes still running after `seconds`; return earlier if there are none."""
    deadline = time.monotonic() + seconds
    while (running := marked(value)) and time.monotonic() < deadline:
        time.sleep(0.2)
    return running
