"""Where Chromium is, and how it is started so that it never outlives who started it.

Two traps of BrowserGym are taken care of here: it hands no switches of ours to the browser, so its executable
is a wrapper that adds them; and a browser whose driver is killed can go on alone, so the wrapper asks the
kernel to end it with its parent.
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
FEATURES_OFF = (
    *("OverlayScrollbars", "ExtendedOverlayScrollbars"),  # BrowserGym's own
    *(
        "WebUIOmniboxPopup",
        "WebUIOmniboxAimPopup",
        "WebUIOmniboxFullPopup",
        "FullWebUIOmniboxFrame",
        "AimEnabled",
    ),
)
"""The second row draws an address bar's suggestions for each window: half a second and 35 MB a tab for what
no one sees.
"""
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
    """The path of Chromium: `executable` if it is given, else the first of NAMES on the PATH.

    Raises:
        EnvironmentFailure: there is none; the message says what to type.
    """
    found = shutil.which(executable) if executable else next(filter(None, map(shutil.which, NAMES)), None)
    if found is None:
        looked = (
            f"environment.browser.executable={executable} is no program"
            if executable
            else f"None of {', '.join(NAMES)} is on the PATH"
        )
        raise EnvironmentFailure(
            f"There is no Chromium: {looked}.", "The browser environment runs a real one.", INSTALL
        )
    return found


def version(executable: str) -> str:
    """What the browser says it is. Raises EnvironmentFailure if it does not start."""
    try:
        asked = subprocess.run(
            [executable, "--version"], capture_output=True, text=True, timeout=60, check=True
        )
    except (OSError, subprocess.SubprocessError) as error:
        raise EnvironmentFailure(
            f"{executable} does not start: {error}.", "Expected a Chromium.", INSTALL
        ) from error
    return asked.stdout.strip()


STARTED = "started"
"""In a worker's folder: the sessions of the browsers that were started there, one a line."""


def write_wrapper(folder: Path, executable: str) -> Path:
    """A program in `folder` that starts `executable` with SWITCHES, ends when its parent does, and notes its
    session.
    """
    starter, wrapper = folder / "starter.py", folder / "chromium"
    values = {
        "executable": os.path.realpath(executable),
        "switches": list(SWITCHES),
        "started": str(folder / STARTED),
    }
    starter.write_text(_STARTER.format(**values))
    wrapper.write_text(
        f'#!/bin/sh\nexec {shlex.quote(sys.executable)} -IS {shlex.quote(str(starter))} "$@"\n'
    )
    wrapper.chmod(0o700)
    return wrapper
