"""A client of OpenEnv's protocol: one WebSocket a session, and the server's list of tasks.

OpenEnv's own client reconnects by itself when the connection is lost, and its next step then lands in a
session that nobody has reset. An agent would be judged by the answers of another world. So a session that
breaks here stays broken: this client is written on websockets, and needs nothing of OpenEnv's package. A
session that does not answer in time is closed, since a late answer would be taken for the answer to the next
request.
"""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from collections.abc import Mapping
from contextlib import suppress
from http.client import HTTPException
from typing import Any
from urllib.parse import quote, urlsplit

from websockets.exceptions import ConnectionClosed, WebSocketException
from websockets.sync.client import ClientConnection, connect

from components.errors import EnvironmentFailure

MOST_BYTES = 8 * 2**20
"""The longest answer that is read: nothing of this size is a state, or a list of tasks to choose from."""
_RUNNING = "Is it running, and does it speak OpenEnv? environment.openenv.url names it."
_LOOPBACK = ("127.0.0.1", "::1", "localhost")


class OpenEnvSession:
    """One session of the server at `url`. It raises only EnvironmentFailure, and is closed then."""

    def __init__(self, url: str, headers: Mapping[str, str], timeout_seconds: float) -> None:
        self._url = url
        self._headers = dict(headers)
        self._timeout = timeout_seconds
        self._connection: ClientConnection | None = None
        self._broken = ""

    def reset(self, options: Mapping[str, Any]) -> dict[str, Any]:
        """Start an episode and return `{"observation": ..., "reward": ..., "done": ...}`."""
        return self._request({"type": "reset", "data": dict(options)})

    def step(self, action: Mapping[str, Any]) -> dict[str, Any]:
        """Take a step and return the same fields as `reset`."""
        return self._request({"type": "step", "data": dict(action)})

    def close(self) -> None:
        """End the session. May be called twice."""
        connection = self._connection
        self._connection = None
        self._broken = self._broken or "The session is closed."
        if connection is not None:
            connection.close()

    def _request(self, message: dict[str, Any]) -> dict[str, Any]:
        if self._broken:
            raise EnvironmentFailure(self._broken, next_step=_RUNNING)
        try:
            connection = self._connection = self._connection or self._connect()
            # Of a closed connection `recv` gives the reason, if the server sent one before.
            with suppress(ConnectionClosed):
                connection.send(json.dumps(message))
            answer = json.loads(connection.recv(timeout=self._timeout))
        except TimeoutError:
            raise self._fail(f"{self._url} did not answer within {self._timeout:g} s.") from None
        except (OSError, WebSocketException) as error:
            raise self._fail(f"{self._url} cannot be reached: {_one_line(error)}.") from None
        except (ValueError, RecursionError):
            raise self._fail(f"{self._url} answered with text that is no JSON.") from None
        return self._read(answer)

    def _connect(self) -> ClientConnection:
        address = urlsplit(self._url)
        options: dict[str, Any] = {"proxy": None} if address.hostname in _LOOPBACK else {}
        return connect(
            f"{'wss' if address.scheme == 'https' else 'ws'}://{address.netloc}{address.path.rstrip('/')}/ws",
            additional_headers=self._headers,
            open_timeout=self._timeout,
            close_timeout=2,
            max_size=MOST_BYTES,
            # No pings: a server that computes for long answers none. The time limit of an answer holds.
            ping_interval=None,
            **options,
        )

    def _read(self, answer: object) -> dict[str, Any]:
        data = answer.get("data") if isinstance(answer, dict) else None
        if not isinstance(answer, dict) or not isinstance(data, dict):
            raise self._fail(f"{self._url} answered {answer!r:.200}, which is no message of OpenEnv's.")
        if answer.get("type") == "error":
            raise self._fail(
                f"{self._url} refuses: {data.get('message', '')!s:.500} ({data.get('code', 'no code')}).", ""
            )
        if answer.get("type") != "observation" or not isinstance(data.get("observation"), dict):
            raise self._fail(
                f"{self._url} answered a message of type {answer.get('type')!r:.50} without an observation."
            )
        return data

    def _fail(self, problem: str, next_step: str = _RUNNING) -> EnvironmentFailure:
        self._broken = problem
        self.close()
        return EnvironmentFailure(problem, next_step=next_step)


def list_tasks(
    url: str, headers: Mapping[str, str], split: str, timeout_seconds: float
) -> list[dict[str, Any]]:
    """Return the tasks of `split` as the server describes them.

    Raises:
        EnvironmentFailure: the server lists none, or cannot be asked.
    """
    names = _fetch(f"{url}/list_environments", headers, timeout_seconds)
    if not isinstance(names, list) or not names or not isinstance(names[0], str):
        raise EnvironmentFailure(
            f"{url}/list_environments answered {names!r:.200}.", "Expected a list of names.", _USE_SEEDS
        )
    splits = _fetch(f"{url}/{quote(names[0])}/splits", headers, timeout_seconds)
    entries = splits if isinstance(splits, list) else []
    split_names = [entry.get("name") for entry in entries if isinstance(entry, dict)]
    if split not in split_names:
        raise EnvironmentFailure(
            f"{url} has no split {split!r}.",
            f"It lists {', '.join(map(str, split_names)) or 'none'}.",
            "Set environment.openenv.train_split and .test_split; the same for both holds out every second "
            "task.",
        )
    answer = _fetch(f"{url}/{quote(names[0])}/tasks", headers, timeout_seconds, {"split": split})
    tasks = answer.get("tasks") if isinstance(answer, dict) else None
    if not isinstance(tasks, list) or not tasks:
        raise EnvironmentFailure(f"{url} lists no tasks of {split}.", next_step=_USE_SEEDS)
    return [task if isinstance(task, dict) else {"id": str(task)} for task in tasks]


_REDIRECTIONS = range(300, 400)


class _SameHostRedirects(urllib.request.HTTPRedirectHandler):
    """Follows a redirection within a host alone: another host would be sent the token."""

    def redirect_request(self, req: Any, fp: Any, code: int, msg: str, headers: Any, newurl: str) -> Any:
        """Return the request to `newurl`, or None to treat the redirection as an error."""
        is_same_host = urlsplit(newurl)[:2] == urlsplit(req.full_url)[:2]
        return super().redirect_request(req, fp, code, msg, headers, newurl) if is_same_host else None


_USE_SEEDS = "Set environment.openenv.tasks=seeds if the server has no list of tasks."


def _fetch(
    address: str, headers: Mapping[str, str], timeout_seconds: float, body: Mapping[str, Any] | None = None
) -> Any:
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(address, data, {"Content-Type": "application/json", **headers})
    handlers: list[Any] = [_SameHostRedirects()]
    handlers += [urllib.request.ProxyHandler({})] if urlsplit(address).hostname in _LOOPBACK else []
    try:
        with urllib.request.build_opener(*handlers).open(request, timeout=timeout_seconds) as answer:
            text = answer.read(MOST_BYTES + 1)
            if len(text) > MOST_BYTES:
                raise EnvironmentFailure(
                    f"{address} answered more than {MOST_BYTES:,} bytes.",
                    "Expected a list that can be read.",
                    f"{_USE_SEEDS[:-1]}, or one that is too long.",
                )
            return json.loads(text)
    except urllib.error.HTTPError as error:
        raise EnvironmentFailure(
            f"{address} answered {error.code} {error.reason}.", next_step=_advice_for(error)
        ) from None
    except (OSError, ValueError, RecursionError, HTTPException) as error:
        raise EnvironmentFailure(
            f"{address} cannot be asked for its tasks: {_one_line(error)}.", next_step=_RUNNING
        ) from None


def _advice_for(error: urllib.error.HTTPError) -> str:
    if error.code in _REDIRECTIONS:
        target = error.headers.get("Location", "another host")
        return f"It redirects to {target!r:.200}, which is not sent the token: name that as the url."
    return "Set environment.openenv.token_variable." if error.code in (401, 403) else _USE_SEEDS


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split()).rstrip(".") or type(error).__name__
