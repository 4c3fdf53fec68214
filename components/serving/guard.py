"""Access control in front of the sessions: token, allowed paths, and the idle timeout.

This is an ASGI layer around OpenEnv's own application. That one knows no tokens, and its time limit ends only
sessions without a WebSocket. The token is compared in constant time. A refused WebSocket is answered with the
HTTP status before it is opened.
"""

from __future__ import annotations

import asyncio
import hmac
import json
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

from components.errors import ConfigError

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Message, Receive, Send], Awaitable[None]]

TOKEN_VARIABLE = "DREAMGYM_SERVE_TOKEN"
MIN_TOKEN_CHARS = 16
IDLE_CLOSE_CODE = 4008
"""Close code of an idle WebSocket; 4000 to 4999 are for applications."""
LOOPBACK_HOSTS = ("127.0.0.1", "::1", "localhost")
HEALTH_PATH = "/health"
SESSION_PATH = "/ws"
TASK_PATHS = tuple(f"/dream/{name}" for name in ("splits", "tasks", "num_tasks", "task", "task_range"))
HTTP_PATHS = (HEALTH_PATH, "/metadata", "/schema", "/list_environments", *TASK_PATHS)
"""Paths without a session. OpenEnv's other paths (/reset, /step, /state, /mcp, /harness) would make an
environment for every call.
"""
MAX_BODY_BYTES = 65_536


def check_token(token: str, host: str) -> str:
    """The token that clients must send; "" for none, which is allowed only on a loopback address.

    Raises:
        ConfigError: the token is too short, holds blanks or non-ASCII characters, or is missing on an address
            that other machines can reach.
    """
    if not token and host not in LOOPBACK_HOSTS:
        raise ConfigError(
            f"{TOKEN_VARIABLE} is not set, and --host {host} can be reached from other machines.",
            f"Expected a secret of at least {MIN_TOKEN_CHARS} characters.",
            f"Type, for example: export {TOKEN_VARIABLE}=$(openssl rand -hex 24)",
        )
    if token and (
        len(token) < MIN_TOKEN_CHARS or not token.isascii() or not token.isprintable() or " " in token
    ):
        raise ConfigError(
            f"{TOKEN_VARIABLE} holds {len(token)} characters.",
            f"Expected at least {MIN_TOKEN_CHARS}, of printable ASCII without blanks.",
            f"Type, for example: export {TOKEN_VARIABLE}=$(openssl rand -hex 24)",
        )
    return token


class Guard:
    """The application `app` behind a token and an idle timeout.

    Without a token, requests of web pages are refused too: otherwise any page could reach a server on the
    machine of its reader.
    """

    def __init__(self, app: App, token: str, idle_seconds: float) -> None:
        self._app = app
        self._idle_seconds = idle_seconds
        self._expected_header = f"Bearer {token}".encode() if token else b""

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        """Refuse the request, or pass it to `app`."""
        if scope["type"] not in ("http", "websocket"):
            await self._app(scope, receive, send)
        elif refusal := self._refusal(scope):
            await _refuse(scope, receive, send, *refusal)
        elif scope["type"] == "http":
            await self._app(scope, receive, send)
        else:
            await self._app(scope, self._with_idle_timeout(receive, send), send)

    def _refusal(self, scope: Message) -> tuple[int, str] | None:
        """HTTP status and reason; None if the request is allowed."""
        path = scope["path"]
        headers = dict(scope["headers"])
        if path == HEALTH_PATH and scope["type"] == "http":
            return None
        if self._expected_header:
            if not hmac.compare_digest(headers.get(b"authorization", b""), self._expected_header):
                return (
                    401,
                    f"Expected the header Authorization: Bearer TOKEN with the server's {TOKEN_VARIABLE}.",
                )
        elif b"origin" in headers:
            return 403, f"Requests of web pages are refused while the server has no {TOKEN_VARIABLE}."
        if path not in (HTTP_PATHS if scope["type"] == "http" else (SESSION_PATH,)):
            return (
                404,
                f"Episodes use the WebSocket {SESSION_PATH}; the other paths are {', '.join(HTTP_PATHS)}.",
            )
        if scope["type"] == "websocket" and scope.get("query_string"):
            return 404, f"{SESSION_PATH} takes no query: each WebSocket has a session of its own."
        if b"transfer-encoding" in headers or int(headers.get(b"content-length", b"0")) > MAX_BODY_BYTES:
            return 413, f"Expected a body of at most {MAX_BODY_BYTES} bytes, with a content-length header."
        return None

    def _with_idle_timeout(self, receive: Receive, send: Send) -> Receive:
        """`receive`, which closes the WebSocket if no message comes in time."""

        async def receive_or_close() -> Message:
            try:
                return await asyncio.wait_for(receive(), self._idle_seconds)
            except TimeoutError:
                reason = f"idle for {self._idle_seconds:g} s"
                await send({"type": "websocket.close", "code": IDLE_CLOSE_CODE, "reason": reason})
                return {"type": "websocket.disconnect", "code": IDLE_CLOSE_CODE, "reason": reason}

        return receive_or_close


async def _refuse(scope: Message, receive: Receive, send: Send, status: int, reason: str) -> None:
    """Answer with the status and a JSON body, before a WebSocket is opened."""
    kind = "websocket.http.response" if scope["type"] == "websocket" else "http.response"
    if scope["type"] == "websocket":
        await receive()
    body = json.dumps({"detail": reason}).encode()
    headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
    headers += [(b"www-authenticate", b"Bearer")] if status == 401 else []
    await send({"type": f"{kind}.start", "status": status, "headers": headers})
    await send({"type": f"{kind}.body", "body": body})
