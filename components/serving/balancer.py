"""One address for many replicas of a dream: each session stays with a replica, and outlives it.

A session's messages go to the replica with the fewest sessions. If that replica ends, or is told to end, the
session goes on with another one: there its episode begins with the same seed and the steps so far as its
history, and the message without an answer is sent again. The client sees no error. What the new replica
samples from then on comes from its own random stream.
"""

from __future__ import annotations

import asyncio
import json
import random
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any

from fastapi import FastAPI, WebSocket, WebSocketDisconnect
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, InvalidHandshake, InvalidURI

from components.serving.guard import HEALTH_PATH, SESSION_PATH
from components.serving.replicas import Replica, Replicas
from components.serving.server import HISTORY_BYTES
from components.serving.shared_dream import CLOSING, SEEDS

ANSWER_SECONDS = 300.0
"""In which a replica must answer a message: a batch under load takes seconds."""
WAIT_SECONDS = 30.0
"""Time that a message waits for a replica while there is none."""
RETRY_SECONDS = 0.5
NO_REPLICA = 1013
"""Close code of a session that no replica takes: try again later."""
FULL = "CAPACITY_REACHED"
"""OpenEnv's error code of a server that has all its sessions."""


class _Lost(Exception):
    """A replica ended, or will end."""


class _Full(Exception):
    """A replica has all its sessions. The first argument is its answer."""


class _Refused(Exception):
    """A replica does not go on with the episode, such as with a lower step limit. Holds its answer."""


class Episode:
    """What another replica must be told of a session: the last reset, and the steps since."""

    def __init__(self) -> None:
        self._reset: dict[str, Any] | None = None
        self._history: list[tuple[str, str]] = []
        self._is_over = False

    def outgoing(self, text: str) -> str:
        """Return a client's message as it is sent to a replica: a reset without a seed gets one."""
        message = _object(text)
        if message.get("type") != "reset" or not isinstance(message.get("data", {}), dict):
            return text
        data = {**message.get("data", {})}
        if data.get("seed") is None:
            data["seed"] = random.randrange(SEEDS)
        return json.dumps({**message, "data": data})

    def note(self, sent: str, answer: str) -> None:
        """Remember a message that was answered."""
        message, found = _object(sent), _object(answer)
        if found.get("type") != "observation":
            return
        data = found["data"]
        if message.get("type") == "reset":
            self._reset = message["data"]
            self._history = [tuple(step) for step in self._reset.get("history", [])]
        elif message.get("type") == "step":
            self._history.append((message["data"]["action"], data["observation"]["state"]))
        self._is_over = bool(data.get("done"))

    @property
    def beginning(self) -> str | None:
        """The reset that begins the episode elsewhere; None if there is no episode in progress.

        Of an episode that is over only its beginning is told: a further step is refused there too.
        """
        if self._reset is None:
            return None
        history = [] if self._is_over else self._history
        return json.dumps({"type": "reset", "data": {**self._reset, "history": history}})


class Balancer:
    """The ASGI application in front of the replicas.

    Attributes:
        moved: episodes in progress that left a replica so far.
    """

    def __init__(self, replicas: Replicas) -> None:
        self.replicas = replicas
        self.moved = 0
        self.app = FastAPI(
            title="Replicas of a dream",
            docs_url=None,
            redoc_url=None,
            openapi_url=None,
            lifespan=self._watching,
        )
        self.app.add_api_route(HEALTH_PATH, self._health)
        self.app.add_api_route("/metadata", self._metadata)
        self.app.add_api_websocket_route(SESSION_PATH, self._session)

    @asynccontextmanager
    async def _watching(self, app: FastAPI) -> AsyncIterator[None]:
        await self.replicas.look()
        task = asyncio.create_task(self.replicas.watch())
        try:
            yield
        finally:
            task.cancel()

    async def _health(self) -> dict[str, Any]:
        """`healthy` if a replica can be used; anyone may ask."""
        return {"status": "healthy" if self.replicas.available else "unhealthy"}

    async def _metadata(self) -> dict[str, Any]:
        """The state of each replica."""
        rows = [
            {"address": one.address, "sessions": one.sessions, "version": one.version, "fault": one.fault}
            for one in self.replicas.all
        ]
        version = next((one.version for one in self.replicas.available), "")
        description = "Replicas of a learned dream behind one address."
        values = {"name": "dream", "description": description, "version": version}
        return {**values, "moved": self.moved, "replicas": rows}

    async def _session(self, client: WebSocket) -> None:
        """Pass a client's messages on until it leaves."""
        await client.accept()
        session = _Session(self)
        with suppress(WebSocketDisconnect):
            try:
                while True:
                    text = await client.receive_text()
                    if _object(text).get("type") == "close":
                        await client.close()
                        return
                    answer = await session.answer(text)
                    await client.send_text(answer)
                    if session.is_refused:
                        await client.close(NO_REPLICA)
                        return
            finally:
                await session.leave()


class _Session:
    """A client's session with one replica at a time."""

    def __init__(self, balancer: Balancer) -> None:
        self.is_refused = False
        self._balancer = balancer
        self._episode = Episode()
        self._replica: Replica | None = None
        self._connection: ClientConnection | None = None

    async def answer(self, text: str) -> str:
        """Return the answer to a client's message, from a replica that is there.

        While no replica answers, or none has room for an episode in progress, it waits, at most
        `WAIT_SECONDS`.
        """
        sent = self._episode.outgoing(text)
        full = refusal = ""
        tried: set[str] = set()
        deadline = time.monotonic() + WAIT_SECONDS
        while True:
            try:
                if self._connection is None and not await self._join(tried):
                    is_new = self._episode.beginning is None
                    if refusal or (full and is_new) or time.monotonic() > deadline:
                        self.is_refused = True
                        no_answer = _error("No replica of the dream answers. Connect again later.")
                        return refusal or full or no_answer
                    await asyncio.sleep(RETRY_SECONDS)
                    await self._balancer.replicas.look()
                    tried.clear()
                    continue
                answer = await self._ask(sent)
            except _Full as error:
                full = error.args[0]
                await self.leave()
            except _Refused as error:
                refusal = error.args[0]
                await self.leave()
            except _Lost as error:
                full = ""
                await self._move(str(error))
            else:
                self._episode.note(sent, answer)
                return answer

    async def leave(self) -> None:
        """End the session with its replica."""
        if self._replica is not None:
            self._replica.sessions -= 1
        if self._connection is not None:
            with suppress(ConnectionClosed, OSError):
                await self._connection.close()
        self._replica = self._connection = None

    async def _join(self, tried: set[str]) -> bool:
        """Connect to a replica that was not tried, and begin the episode there; False if none is left.

        Raises:
            _Lost, _Full: as `_ask`.
            _Refused: the episode cannot go on there.
        """
        candidates = [one for one in self._balancer.replicas.available if one.address not in tried]
        if not candidates:
            return False
        self._replica = candidates[0]
        self._replica.sessions += 1
        tried.add(self._replica.address)
        token = self._balancer.replicas.token
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        try:
            self._connection = await connect(
                self._replica.socket_address,
                additional_headers=headers,
                max_size=HISTORY_BYTES,
                compression=None,
                ping_timeout=ANSWER_SECONDS,
            )
        except (OSError, TimeoutError, InvalidHandshake, InvalidURI) as error:
            raise _Lost(str(error)) from error
        beginning = self._episode.beginning
        if beginning is not None:
            answer = await self._ask(beginning)
            if _object(answer).get("type") != "observation":
                raise _Refused(answer)
        return True

    async def _ask(self, text: str) -> str:
        """Send a message to the replica and return its answer."""
        assert self._connection is not None
        try:
            with suppress(ConnectionClosed):  # a full server says so before it closes
                await self._connection.send(text)
            answer = str(await asyncio.wait_for(self._connection.recv(), ANSWER_SECONDS))
        except (ConnectionClosed, OSError, TimeoutError) as error:
            raise _Lost(f"{type(error).__name__}: {error}") from error
        found = _object(answer)
        if found.get("type") == "error":
            data = found.get("data", {})
            if data.get("code") == FULL:
                raise _Full(answer)
            if CLOSING in str(data.get("message", "")):
                raise _Lost(CLOSING)
        return answer

    async def _move(self, reason: str) -> None:
        """Leave a replica that was lost."""
        if self._replica is not None:
            self._balancer.replicas.lose(self._replica, reason)
            self._balancer.moved += self._episode.beginning is not None
        await self.leave()


def _object(text: str) -> dict[str, Any]:
    """Return a message as a JSON object; empty if it is none."""
    try:
        value = json.loads(text)
    except ValueError:
        return {}
    return value if isinstance(value, dict) else {}


def _error(message: str) -> str:
    """Return an error as OpenEnv writes it."""
    return json.dumps({"type": "error", "data": {"message": message, "code": "SESSION_ERROR"}})
