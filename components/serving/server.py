"""The dream behind OpenEnv's HTTP and WebSocket protocol, until a signal ends it.

On SIGTERM or Ctrl-C the port is freed, every WebSocket is closed with code 1012 (the service restarts), and
what is being dreamed is finished within `GRACE_SECONDS`.
"""

from __future__ import annotations

import errno
import signal
import socket
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from types import FrameType

import uvicorn
from fastapi import FastAPI
from openenv.core.env_server import HTTPEnvServer, ServerMode

from components.errors import ConfigError
from components.serving.dream_session import DreamAction, DreamObservation, DreamSession, Limits
from components.serving.guard import App, Guard
from components.serving.shared_dream import SharedDream
from components.serving.task_choice import Catalogue

GRACE_SECONDS = 10
MESSAGE_BYTES_A_CHAR, LEAST_CHARS = 12, 2000
"""What a character may take in a message, escaped as JSON (one outside the first plane: twelve), and room for
the texts of a `reset`; the rest of a message is some hundred bytes.
"""
_CURES = {
    errno.EADDRINUSE: "Stop what listens there, or name another port: dreamgym serve --port {other}",
    errno.EACCES: "Name a port above 1023: dreamgym serve --port {other}",
    errno.EADDRNOTAVAIL: "This machine has no such address: dreamgym serve --host 127.0.0.1",
}


@dataclass(frozen=True)
class Door:
    """Where the server listens, whom it lets in, and when it closes on the idle."""

    host: str
    port: int
    token: str
    idle_seconds: float


def application(dream: SharedDream, catalogue: Catalogue, limits: Limits, door: Door) -> App:
    """The ASGI application: OpenEnv's, behind our guard, with as many sessions as the dream has rows."""
    app = FastAPI(title="A dream", docs_url=None, redoc_url=None, openapi_url=None)
    factory = partial(DreamSession, dream, catalogue, limits)
    server = HTTPEnvServer(
        factory, DreamAction, DreamObservation, max_concurrent_envs=dream.rows, env_name="dream"
    )
    server.register_routes(app, mode=ServerMode.SIMULATION)
    return Guard(app, door.token, door.idle_seconds)


def configured(app: App, limits: Limits, idle_seconds: float) -> uvicorn.Config:
    """How uvicorn runs `app`: no message is much larger than the longest action, and who is busy may answer
    pings as late as ask.
    """
    return uvicorn.Config(
        app,  # type: ignore[arg-type]
        ws_max_size=1024 + MESSAGE_BYTES_A_CHAR * max(LEAST_CHARS, limits.chars),
        ws_per_message_deflate=False,
        ws_ping_timeout=idle_seconds,
        timeout_graceful_shutdown=GRACE_SECONDS,
        log_level="warning",
        access_log=False,
        server_header=False,
    )


def listen(host: str, port: int) -> socket.socket:
    """A listening socket. Raises ConfigError if the address cannot be had."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listening = socket.socket(family)
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listening.bind((host, port))
    except OSError as error:
        listening.close()
        found = f"{host}:{port} cannot be listened on: {error.strerror or error}."
        cure = _CURES.get(
            error.errno or 0, "Name another address: dreamgym serve --host 127.0.0.1 --port {other}"
        )
        raise ConfigError(
            found, next_step=cure.format(other=port + 1 if 1024 <= port < 65535 else 8000)
        ) from None
    listening.listen(128)
    return listening


def serve(
    dream: SharedDream, catalogue: Catalogue, limits: Limits, door: Door, on_ready: Callable[[str], None]
) -> None:
    """Serve until SIGTERM or Ctrl-C; `on_ready` is told the address. The dream is closed at the end.

    Raises:
        ConfigError: the address cannot be had.
    """
    try:
        listening = listen(door.host, door.port)
        shown = f"[{door.host}]" if ":" in door.host else door.host
        config = configured(application(dream, catalogue, limits, door), limits, door.idle_seconds)
        _run(_Announced(config, partial(on_ready, f"http://{shown}:{listening.getsockname()[1]}")), listening)
    finally:
        dream.close()


class _Announced(uvicorn.Server):
    """uvicorn's server, which says when it is ready."""

    def __init__(self, config: uvicorn.Config, on_ready: Callable[[], None]) -> None:
        super().__init__(config)
        self._on_ready = on_ready

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Start, then say so."""
        await super().startup(sockets)
        if self.started:
            self._on_ready()


def _run(server: uvicorn.Server, listening: socket.socket) -> None:
    """Run to the end. uvicorn raises the signal that ended it once more when it is done: here that is the
    end, and no failure.
    """

    def ended(number: int, frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    main = threading.current_thread() is threading.main_thread()
    before = signal.signal(signal.SIGTERM, ended) if main else None
    try:
        with suppress(KeyboardInterrupt):
            server.run(sockets=[listening])
    finally:
        listening.close()
        if main:
            signal.signal(signal.SIGTERM, before)
