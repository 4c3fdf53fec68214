"""Find Chromium, and write the wrapper that starts it so that it never outlives its parent process.

BrowserGym has two limits that the wrapper works around. It passes no switches of ours to the browser, so the
executable that it is given adds them. And a browser whose driver is killed can continue alone, so the wrapper
asks the kernel to end it with its parent.
"""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

from components.errors import EnvironmentFailure

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
"""Names under which Chromium is looked for on the PATH."""
INSTALL = "Type `apt-get install -y chromium`, or set environment.browser.executable to a Chromium or Chrome."
SWITCHES = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-dev-shm-usage",
)
DISABLED_FEATURES = (
    # BrowserGym disables these two itself.
    "OverlayScrollbars",
    "ExtendedOverlayScrollbars",
    # These draw the suggestions of an address bar for each window: half a second and 35 MB per tab.
    "WebUIOmniboxPopup",
    "WebUIOmniboxAimPopup",
    "WebUIOmniboxFullPopup",
    "FullWebUIOmniboxFrame",
    "AimEnabled",
)
"""Features of Chromium that are switched off."""
SESSIONS_FILE = "started"
"""File in a worker's folder that lists the session ids of the browsers started there, one a line."""
_STARTER = """import ctypes, os, signal, sys
ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG: end with the driver
if os.getppid() == 1:
    sys.exit(1)
if os.getsid(0) == os.getpid():  # the browser leads a session of its own, never the user's
    with open({started!r}, "a") as started:
        started.write(f"{{os.getpid()}}\\n")
os.execv({executable!r}, [{executable!r}, *{switches!r}, *sys.argv[1:]])
"""


def find_chromium(executable: str = "") -> str:
    """Return the path of Chromium: `executable` if it is given, else the first of NAMES on the PATH.

    Raises:
        EnvironmentFailure: there is none; the message says what to type.
    """
    path = shutil.which(executable) if executable else next(filter(None, map(shutil.which, NAMES)), None)
    if path is None:
        problem = (
            f"environment.browser.executable={executable} is no program"
            if executable
            else f"None of {', '.join(NAMES)} is on the PATH"
        )
        raise EnvironmentFailure(
            f"There is no Chromium: {problem}.", "The browser environment runs a real one.", INSTALL
        )
    return path


def read_version(executable: str) -> str:
    """Return what the browser prints as its version.

    Raises:
        EnvironmentFailure: it does not start.
    """
    try:
        completed = subprocess.run(
            [executable, "--version"], capture_output=True, text=True, timeout=60, check=True
        )
    except (OSError, subprocess.SubprocessError) as error:
        raise EnvironmentFailure(
            f"{executable} does not start: {error}.", "Expected a Chromium.", INSTALL
        ) from error
    return completed.stdout.strip()


def write_wrapper(folder: Path, executable: str) -> Path:
    """Write a program into `folder` that starts `executable` with SWITCHES, and return its path.

    The program ends when its parent does, and notes its session in SESSIONS_FILE.
    """
    starter = folder / "starter.py"
    wrapper = folder / "chromium"
    values = {
        "executable": os.path.realpath(executable),
        "switches": list(SWITCHES),
        "started": str(folder / SESSIONS_FILE),
    }
    starter.write_text(_STARTER.format(**values))
    wrapper.write_text(
        f'#!/bin/sh\nexec {shlex.quote(sys.executable)} -IS {shlex.quote(str(starter))} "$@"\n'
    )
    wrapper.chmod(0o700)
    return wrapper
