"""The dream behind OpenEnv's HTTP and WebSocket protocol, until a signal ends it.

On SIGTERM or Ctrl-C the port is freed, every WebSocket is closed with code 1012 (service restart), and the
steps in progress are finished within `GRACE_SECONDS`.
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
MESSAGE_BYTES_PER_CHAR = 12
"""Most bytes of a character escaped as JSON (a surrogate pair)."""
HISTORY_BYTES = 4_000_000
"""Room for the history of a `reset`; its other texts and the rest of a message take some kilobytes."""
_NEXT_STEPS = {
    errno.EADDRINUSE: "Stop what listens there, or name another port: dreamgym serve --port {other}",
    errno.EACCES: "Name a port above 1023: dreamgym serve --port {other}",
    errno.EADDRNOTAVAIL: "This machine has no such address: dreamgym serve --host 127.0.0.1",
}


@dataclass(frozen=True)
class ServerSettings:
    """Address, token ("" for none) and idle timeout of the server."""

    host: str
    port: int
    token: str
    idle_seconds: float


def application(dream: SharedDream, catalogue: Catalogue, limits: Limits, settings: ServerSettings) -> App:
    """The ASGI application: OpenEnv's behind `Guard`, with as many sessions as the dream has rows."""
    app = FastAPI(title="A dream", docs_url=None, redoc_url=None, openapi_url=None)
    factory = partial(DreamSession, dream, catalogue, limits)
    server = HTTPEnvServer(
        factory, DreamAction, DreamObservation, max_concurrent_envs=dream.rows, env_name="dream"
    )
    server.register_routes(app, mode=ServerMode.SIMULATION)
    return Guard(app, settings.token, settings.idle_seconds)


def uvicorn_config(app: App, limits: Limits, idle_seconds: float) -> uvicorn.Config:
    """uvicorn's configuration for `app`.

    No message is much larger than a history and the longest action. A busy client may answer a ping as late
    as it may be idle.
    """
    return uvicorn.Config(
        app,  # type: ignore[arg-type]
        ws_max_size=HISTORY_BYTES + MESSAGE_BYTES_PER_CHAR * limits.chars,
        ws_per_message_deflate=False,
        ws_ping_timeout=idle_seconds,
        timeout_graceful_shutdown=GRACE_SECONDS,
        log_level="warning",
        access_log=False,
        server_header=False,
    )


def listen(host: str, port: int) -> socket.socket:
    """A listening socket. Raises ConfigError if the address cannot be used."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listening = socket.socket(family)
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listening.bind((host, port))
    except OSError as error:
        listening.close()
        next_step = _NEXT_STEPS.get(
            error.errno or 0, "Name another address: dreamgym serve --host 127.0.0.1 --port {other}"
        )
        other_port = port + 1 if 1024 <= port < 65535 else 8000
        raise ConfigError(
            f"{host}:{port} cannot be listened on: {error.strerror or error}.",
            next_step=next_step.format(other=other_port),
        ) from None
    listening.listen(128)
    return listening


def serve(
    dream: SharedDream,
    catalogue: Catalogue,
    limits: Limits,
    settings: ServerSettings,
    on_ready: Callable[[str], None],
) -> None:
    """Serve until SIGTERM or Ctrl-C, then close the dream.

    Args: on_ready: called with the address once the server is ready.

    Raises:
        ConfigError: the address cannot be used.
    """
    try:
        serve_app(application(dream, catalogue, limits, settings), limits, settings, on_ready)
    finally:
        dream.close()


def serve_app(app: App, limits: Limits, settings: ServerSettings, on_ready: Callable[[str], None]) -> None:
    """Serve an application until SIGTERM or Ctrl-C; see `serve`."""
    listening = listen(settings.host, settings.port)
    host = f"[{settings.host}]" if ":" in settings.host else settings.host
    address = f"http://{host}:{listening.getsockname()[1]}"
    config = uvicorn_config(app, limits, settings.idle_seconds)
    _run(_AnnouncingServer(config, partial(on_ready, address)), listening)


class _AnnouncingServer(uvicorn.Server):
    """uvicorn's server, which calls `on_ready` when it is ready."""

    def __init__(self, config: uvicorn.Config, on_ready: Callable[[], None]) -> None:
        super().__init__(config)
        self._on_ready = on_ready

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Start, then call `on_ready`."""
        await super().startup(sockets)
        if self.started:
            self._on_ready()


def _run(server: uvicorn.Server, listening: socket.socket) -> None:
    """Run the server to its end.

    At its end, uvicorn raises the signal that ended it once more. Here that is a normal end, and no failure.
    """

    def raise_interrupt(number: int, frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    is_main_thread = threading.current_thread() is threading.main_thread()
    previous_handler = signal.signal(signal.SIGTERM, raise_interrupt) if is_main_thread else None
    try:
        with suppress(KeyboardInterrupt):
            server.run(sockets=[listening])
    finally:
        listening.close()
        if is_main_thread:
            signal.signal(signal.SIGTERM, previous_handler)
