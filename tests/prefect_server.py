"""Prefect servers for tests: wait for one, or share one between the commands of this process."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from functools import cache

import httpx
from ports import free_port

from flows.settings import DEFAULTS


def await_health(url: str, seconds: float) -> None:
    """Wait until the server answers.

    Raises:
        TimeoutError: it does not answer within `seconds`.
    """
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        try:
            httpx.get(f"{url}/health", timeout=5).raise_for_status()
            return
        except httpx.HTTPError:
            time.sleep(0.5)
    raise TimeoutError(f"No Prefect server answered at {url} within {seconds:g} s.")


def shared_server() -> str:
    """Return the address of a server that is started once and ended by `stop_shared_server`.

    A server of its own would cost each command ten seconds.
    """
    return _shared()[0]


def stop_shared_server() -> None:
    """End the shared server if there is one."""
    if _shared.cache_info().currsize:
        _, child, home = _shared()
        os.killpg(child.pid, signal.SIGTERM)
        child.wait(30)
        shutil.rmtree(home, ignore_errors=True)


@cache
def _shared() -> tuple[str, subprocess.Popen[bytes], str]:
    port = free_port()
    home = tempfile.mkdtemp(prefix="prefect-")
    command = [sys.executable, "-m", "prefect", "server", "start", "--host", "127.0.0.1", "--port", str(port)]
    environment = {**os.environ, **DEFAULTS, "PREFECT_HOME": home}
    child = subprocess.Popen(
        command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True
    )
    await_health(f"http://127.0.0.1:{port}/api", 240)
    return f"http://127.0.0.1:{port}/api", child, home
