"""What stands before the sessions: who may come in, by which doors, and how long one may sit idle.

An ASGI layer around OpenEnv's own application, which knows neither tokens nor idle WebSockets: its time limit
ends sessions without a WebSocket alone. The token is compared in constant time. A refused WebSocket is
answered with the HTTP status before it is opened.
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
SHORTEST_TOKEN = 16
IDLE_CODE = 4008
"""With which a WebSocket is closed that has asked for nothing for too long (4000 to 4999 are an application's
own).
"""
LOOPBACK = ("127.0.0.1", "::1", "localhost")
OPEN = "/health"
SESSIONS = "/ws"
TASKS = tuple(f"/dream/{what}" for what in ("splits", "tasks", "num_tasks", "task", "task_range"))
QUESTIONS = (OPEN, "/metadata", "/schema", "/list_environments", *TASKS)
"""What may be asked without a session. OpenEnv's other doors (/reset, /step, /state, /mcp, /harness) make an
environment for every call.
"""
MOST_BODY_BYTES = 65_536


def check_token(token: str, host: str) -> str:
    """The token to ask for, "" for none, which only this machine's own address may do without.

    Raises:
        ConfigError: it is too short to be a secret, holds blanks or what is no ASCII, or is missing where
            others could reach the server.
    """
    if not token and host not in LOOPBACK:
        raise ConfigError(
            f"{TOKEN_VARIABLE} is not set, and --host {host} can be reached from other machines.",
            f"Expected a secret of at least {SHORTEST_TOKEN} characters.",
            f"Type, for example: export {TOKEN_VARIABLE}=$(openssl rand -hex 24)",
        )
    if token and (
        len(token) < SHORTEST_TOKEN or not token.isascii() or not token.isprintable() or " " in token
    ):
        raise ConfigError(
            f"{TOKEN_VARIABLE} holds {len(token)} characters.",
            f"Expected at least {SHORTEST_TOKEN}, of printable ASCII without blanks.",
            f"Type, for example: export {TOKEN_VARIABLE}=$(openssl rand -hex 24)",
        )
    return token


class Guard:
    """The application `app` behind a token and an idle timeout.

    Without a token browsers are refused, too: a page from anywhere could otherwise reach a server on its
    reader's own machine.
    """

    def __init__(self, app: App, token: str, idle_seconds: float) -> None:
        self._app, self._idle_seconds = app, idle_seconds
        self._expected = f"Bearer {token}".encode() if token else b""

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        """Refuse, or let `app` answer."""
        if scope["type"] not in ("http", "websocket"):
            await self._app(scope, receive, send)
        elif refusal := self._refusal(scope):
            await _refuse(scope, receive, send, *refusal)
        elif scope["type"] == "http":
            await self._app(scope, receive, send)
        else:
            await self._app(scope, self._awake(receive, send), send)

    def _refusal(self, scope: Message) -> tuple[int, str] | None:
        """Status and reason, None for those who may come in."""
        path, headers = scope["path"], dict(scope["headers"])
        if path == OPEN and scope["type"] == "http":
            return None
        if self._expected:
            if not hmac.compare_digest(headers.get(b"authorization", b""), self._expected):
                return (
                    401,
                    f"Expected the header Authorization: Bearer TOKEN with the server's {TOKEN_VARIABLE}.",
                )
        elif b"origin" in headers:
            return 403, f"Requests of web pages are refused while the server has no {TOKEN_VARIABLE}."
        if path not in (QUESTIONS if scope["type"] == "http" else (SESSIONS,)):
            return (
                404,
                f"Episodes go over the WebSocket {SESSIONS}; beside it there are {', '.join(QUESTIONS)}.",
            )
        if scope["type"] == "websocket" and scope.get("query_string"):
            return 404, f"{SESSIONS} takes no query: a WebSocket has a session of its own, and nobody else's."
        if b"transfer-encoding" in headers or int(headers.get(b"content-length", b"0")) > MOST_BODY_BYTES:
            return 413, f"A question has at most {MOST_BODY_BYTES} bytes, and says how many."
        return None

    def _awake(self, receive: Receive, send: Send) -> Receive:
        """`receive`, which closes the WebSocket when nothing has come for too long."""

        async def awake() -> Message:
            try:
                return await asyncio.wait_for(receive(), self._idle_seconds)
            except TimeoutError:
                reason = f"idle for {self._idle_seconds:g} s"
                await send({"type": "websocket.close", "code": IDLE_CODE, "reason": reason})
                return {"type": "websocket.disconnect", "code": IDLE_CODE, "reason": reason}

        return awake


async def _refuse(scope: Message, receive: Receive, send: Send, status: int, reason: str) -> None:
    kind = "websocket.http.response" if scope["type"] == "websocket" else "http.response"
    if scope["type"] == "websocket":
        await receive()
    body = json.dumps({"detail": reason}).encode()
    headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
    headers += [(b"www-authenticate", b"Bearer")] if status == 401 else []
    await send({"type": f"{kind}.start", "status": status, "headers": headers})
    await send({"type": f"{kind}.body", "body": body})
