"""Starts the servers of MLflow and Prefect as child processes that end with the command.

    dreamgym ui

A child that is still running `GRACE_SECONDS` after SIGTERM is killed. Their output is in `.dreamgym/ui/`.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from types import FrameType

from components.config import TrackingConfig
from components.errors import ConfigError, TrackingError
from components.tracking.mlflow_adapter.mlflow_uri import (
    exclusive_store_access,
    require_reachable,
    resolve_uri,
    update_moved_locations,
    without_password,
)
from flows.checks.machine import HOST, port_is_free

START_SECONDS = 180.0
"""Most seconds until a server answers."""
GRACE_SECONDS = 10.0


@dataclass(frozen=True)
class Service:
    """A server to start.

    Args:
        health: path that answers when the server is ready.
        option: of `dreamgym ui` that chooses another port.
        environment: further environment variables.
    """

    name: str
    command: tuple[str, ...]
    port: int
    health: str
    option: str
    environment: tuple[tuple[str, str], ...] = ()

    @property
    def address(self) -> str:
        """The server's address in a browser."""
        return f"http://{HOST}:{self.port}"


def mlflow_service(config: TrackingConfig, root: Path, port: int) -> Service | str:
    """Return the MLflow server of the store of runs; its address if the store is a server."""
    uri = resolve_uri(config, root)
    if uri.startswith(("http://", "https://")):
        return without_password(uri)
    require_reachable(uri)
    with exclusive_store_access(
        uri
    ):  # creates the tables of a new store before a server could be killed at it
        update_moved_locations(uri, root)
    command = (
        sys.executable,
        "-m",
        "mlflow",
        "server",
        "--backend-store-uri",
        uri,
        "--host",
        HOST,
        "--port",
        str(port),
        "--workers",
        "1",
    )
    return Service("MLflow", command, port, "/health", "--mlflow-port")


def prefect_service(port: int) -> Service | str:
    """Return the Prefect server of the flows' database; its address if PREFECT_API_URL is set."""
    if url := os.environ.get("PREFECT_API_URL", ""):
        return url.removesuffix("/").removesuffix("/api")
    command = (sys.executable, "-m", "prefect", "server", "start", "--host", HOST, "--port", str(port))
    # The web pages use these settings, not the address that the server listens on.
    environment = (("PREFECT_SERVER_API_HOST", HOST), ("PREFECT_SERVER_API_PORT", str(port)))
    return Service("Prefect", command, port, "/api/health", "--prefect-port", environment)


def require_free_ports(services: Sequence[Service]) -> None:
    """Check the ports before anything is started.

    Raises:
        TrackingError: a port is in use.
        ConfigError: two services have the same port.
    """
    if len({service.port for service in services}) < len(services):
        names = " and ".join(service.name for service in services)
        problem = f"{names} are both given the port {services[0].port}."
        raise ConfigError(
            problem,
            "Expected two ports.",
            "Type, for example: dreamgym ui --mlflow-port 5001 --prefect-port 4201",
        )
    for service in services:
        if not port_is_free(service.port):
            problem = f"Port {service.port} is in use; {service.name} needs it."
            command = f"dreamgym ui {service.option} {service.port + 1}"
            next_step = (
                f"Stop what listens there (`ss -ltnp | grep {service.port}` names it), or type: {command}"
            )
            raise TrackingError(problem, next_step=next_step)


def serve(services: Sequence[Service], root: Path, on_ready: Callable[[Service], None]) -> None:
    """Start the services, wait for Ctrl-C or SIGTERM, then stop all of them.

    Args:
        on_ready: called with each service when it answers.

    Raises:
        TrackingError: a port is in use, or a service ended or did not answer in time.
    """
    require_free_ports(services)
    old_handler = signal.signal(signal.SIGTERM, _interrupt)
    children: list[tuple[Service, subprocess.Popen[bytes], Path]] = []
    try:
        for service in services:
            children.append((service, *_start(service, root)))
        for service, child, log in children:
            _await_health(service, child, log)
            on_ready(service)
        while True:
            for service, child, log in children:
                if child.poll() is not None:
                    raise _ended_error(service, child, log)
            time.sleep(0.5)
    except KeyboardInterrupt:
        return
    finally:
        stop([child for _, child, _ in children])
        signal.signal(signal.SIGTERM, old_handler)


def stop(children: Sequence[subprocess.Popen[bytes]]) -> None:
    """Send SIGTERM to every child's process group, and SIGKILL to those still running after GRACE_SECONDS."""
    for child in children:
        _signal_group(child, signal.SIGTERM)
    deadline = time.monotonic() + GRACE_SECONDS
    for child in children:
        with suppress(subprocess.TimeoutExpired):
            child.wait(max(0.1, deadline - time.monotonic()))
        _signal_group(child, signal.SIGKILL)
        child.wait()


def _start(service: Service, root: Path) -> tuple[subprocess.Popen[bytes], Path]:
    log = root / ".dreamgym" / "ui" / f"{service.name.lower()}.log"
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("wb") as output:
        # In a session of its own, so that Ctrl-C reaches only this command, which then ends the whole group.
        return subprocess.Popen(
            service.command,
            cwd=root,
            env={**os.environ, **dict(service.environment)},
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        ), log


def _await_health(service: Service, child: subprocess.Popen[bytes], log: Path) -> None:
    deadline = time.monotonic() + START_SECONDS
    while time.monotonic() < deadline:
        if child.poll() is not None:
            raise _ended_error(service, child, log)
        try:
            urllib.request.urlopen(service.address + service.health, timeout=5).close()
            return
        except (urllib.error.URLError, OSError):
            time.sleep(0.5)
    raise TrackingError(
        f"{service.name} did not answer at {service.address} within {START_SECONDS:g} s.",
        next_step=f"Look at {log}.",
    )


def _ended_error(service: Service, child: subprocess.Popen[bytes], log: Path) -> TrackingError:
    lines = [line for line in log.read_text(errors="replace").splitlines() if line.strip()]
    reason = lines[-1] if lines else "it printed nothing"
    return TrackingError(
        f"{service.name} ended with exit code {child.returncode}: {reason}", next_step=f"Look at {log}."
    )


def _signal_group(child: subprocess.Popen[bytes], number: signal.Signals) -> None:
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(child.pid, number)


def _interrupt(_number: int, _frame: FrameType | None) -> None:
    raise KeyboardInterrupt
