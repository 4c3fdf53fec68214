"""The two user interfaces, MLflow's and Prefect's, as child processes that end with the command.

    dreamgym ui

A child that outlives SIGTERM is killed after `GRACE_SECONDS`. Their output lies under `.dreamgym/ui/`.
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
    follow_move,
    opened_alone,
    require_reachable,
    resolve_uri,
    without_password,
)
from flows.checks.machine import HOST, port_is_free

START_SECONDS = 180.0
GRACE_SECONDS = 10.0


@dataclass(frozen=True)
class Service:
    """A server to start: how, on which port, and where it says that it is well. `option` is what chooses
    another port, `environment` what it is told besides.
    """

    name: str
    command: tuple[str, ...]
    port: int
    health: str
    option: str
    environment: tuple[tuple[str, str], ...] = ()

    @property
    def address(self) -> str:
        """Where a browser finds it."""
        return f"http://{HOST}:{self.port}"


def mlflow_service(config: TrackingConfig, root: Path, port: int) -> Service | str:
    """The MLflow server over the store that runs are recorded in; its address if that already is a server."""
    uri = resolve_uri(config, root)
    if uri.startswith(("http://", "https://")):
        return without_password(uri)
    require_reachable(uri)
    with opened_alone(uri):  # a new store has its tables before a server could be killed among them
        follow_move(uri, root)
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
    """The Prefect server over the database that flows write to; its address if PREFECT_API_URL names one."""
    if url := os.environ.get("PREFECT_API_URL", ""):
        return url.removesuffix("/").removesuffix("/api")
    command = (sys.executable, "-m", "prefect", "server", "start", "--host", HOST, "--port", str(port))
    told = (
        ("PREFECT_SERVER_API_HOST", HOST),
        ("PREFECT_SERVER_API_PORT", str(port)),
    )  # the pages ask there, not where the server listens
    return Service("Prefect", command, port, "/api/health", "--prefect-port", told)


def require_free_ports(services: Sequence[Service]) -> None:
    """Fail before anything is started. Raises TrackingError naming the port in use, or ConfigError if two are
    to share one.
    """
    if len({service.port for service in services}) < len(services):
        found = (
            f"{' and '.join(service.name for service in services)} are both to listen on port "
            f"{services[0].port}."
        )
        raise ConfigError(
            found,
            "Expected two ports.",
            "Type, for example: dreamgym ui --mlflow-port 5001 --prefect-port 4201",
        )
    for service in services:
        if not port_is_free(service.port):
            found = f"Port {service.port} is in use; {service.name} needs it."
            other = f"dreamgym ui {service.option} {service.port + 1}"
            next_step = (
                f"Stop what listens there (`ss -ltnp | grep {service.port}` names it), or type: {other}"
            )
            raise TrackingError(found, next_step=next_step)


def serve(services: Sequence[Service], root: Path, on_ready: Callable[[Service], None]) -> None:
    """Start the services, say so when each is well, and wait for Ctrl-C or SIGTERM; all of them are stopped
    then.

    Raises:
        TrackingError: a port is in use, or a service ended or did not become well in time.
    """
    require_free_ports(services)
    before = signal.signal(signal.SIGTERM, _interrupt)
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
                    raise _ended(service, child, log)
            time.sleep(0.5)
    except KeyboardInterrupt:
        return
    finally:
        stop([child for _, child, _ in children])
        signal.signal(signal.SIGTERM, before)


def stop(children: Sequence[subprocess.Popen[bytes]]) -> None:
    """SIGTERM to every child's process group, SIGKILL to those that are still there after the grace."""
    for child in children:
        _signal(child, signal.SIGTERM)
    deadline = time.monotonic() + GRACE_SECONDS
    for child in children:
        with suppress(subprocess.TimeoutExpired):
            child.wait(max(0.1, deadline - time.monotonic()))
        _signal(child, signal.SIGKILL)
        child.wait()


def _start(service: Service, root: Path) -> tuple[subprocess.Popen[bytes], Path]:
    log = root / ".dreamgym" / "ui" / f"{service.name.lower()}.log"
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("wb") as output:
        # A session of its own: Ctrl-C reaches this command alone, which then ends the whole group.
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
            raise _ended(service, child, log)
        try:
            urllib.request.urlopen(service.address + service.health, timeout=5).close()
            return
        except (urllib.error.URLError, OSError):
            time.sleep(0.5)
    raise TrackingError(
        f"{service.name} did not answer at {service.address} within {START_SECONDS:g} s.",
        next_step=f"Look at {log}.",
    )


def _ended(service: Service, child: subprocess.Popen[bytes], log: Path) -> TrackingError:
    last = [line for line in log.read_text(errors="replace").splitlines() if line.strip()][-1:] or [
        "it said nothing"
    ]
    return TrackingError(
        f"{service.name} ended with exit code {child.returncode}: {last[0]}", next_step=f"Look at {log}."
    )


def _signal(child: subprocess.Popen[bytes], number: signal.Signals) -> None:
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(child.pid, number)


def _interrupt(_number: int, _frame: FrameType | None) -> None:
    raise KeyboardInterrupt
