"""vLLM servers with the same model: which one gets a request, and what happens if one does not answer.

A row's requests go to the same replica, which has their common prefix in its cache (rendezvous hashing). A
replica that does not answer is left out, and its rows go on elsewhere; one that answers again is taken back.
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from threading import Lock
from typing import Any, TypeVar

import httpx

from components.errors import ConfigError, TrainingError

_LOG = logging.getLogger(__name__)
T = TypeVar("T")
HEALTH_SECONDS = 5.0
"""Timeout of the question whether a lost replica answers again."""
TRIES = 2
"""How often a replica is asked before it is left out."""
MOST_CONNECTIONS = 512
AFTER_A_RESTART = ("/v1/completions",)
"""Paths of which 404 says that the replica has no adapters: it was started again."""
START = (
    "Start each with: VLLM_ALLOW_RUNTIME_LORA_UPDATING=True vllm serve MODEL --enable-lora --max-loras 2 "
    "--max-lora-rank RANK --logprobs-mode processed_logprobs"
)


class Replicas:
    """The servers at `urls`.

    Args:
        urls: addresses, such as http://localhost:8000.
        timeout_seconds: of one answer.

    Raises:
        ConfigError: there is no address.
    """

    def __init__(self, urls: Sequence[str], timeout_seconds: float) -> None:
        if not urls:
            raise ConfigError(
                "engine is vllm-server, and vllm.servers is empty.",
                "Expected the address of at least one server.",
                START,
            )
        self.alive = [url.rstrip("/") for url in urls]
        self.lost: list[str] = []
        self._lock = Lock()
        limits = httpx.Limits(max_connections=MOST_CONNECTIONS, max_keepalive_connections=MOST_CONNECTIONS)
        self._client = httpx.Client(timeout=timeout_seconds, limits=limits)
        self._pool = ThreadPoolExecutor(64, thread_name_prefix="vllm-server")

    def close(self) -> None:
        """Close the connections."""
        self._pool.shutdown(cancel_futures=True)
        self._client.close()

    def keep(self, urls: Iterable[str]) -> None:
        """Use these alone from now on."""
        kept = set(urls)
        self.alive = [url for url in self.alive if url in kept]

    def tell_all(self, path: str, body: dict[str, Any], *, may_refuse: bool = False) -> None:
        """Send a command to each living replica; one that does not answer is left out.

        Args: may_refuse: a refusal is no error, such as of a server that was started again since.

        Raises:
            TrainingError: none is left, or one refuses.
        """
        for url in list(self.alive):
            try:
                self._ask(url, path, body)
            except TrainingError:
                if not may_refuse:
                    raise
        self._require_one()

    def ask_all(self, path: str, body: dict[str, Any] | None, read: Callable[[Any], T]) -> dict[str, T]:
        """Address -> what `read` makes of the JSON answer; a replica that does not answer is left out.

        Raises:
            TrainingError: none is left, or one refuses or answers something else.
        """
        responses = {url: self._ask(url, path, body) for url in list(self.alive)}
        self._require_one()
        return {
            url: _read(url, path, response, read)
            for url, response in responses.items()
            if response is not None
        }

    def take_back(self, prepare: Callable[[str], None]) -> None:
        """Take back each lost replica that answers again.

        Args:
            prepare: called with its address before it gets requests, to load what the others hold. If it
                raises, the replica stays left out.
        """
        for url in list(self.lost):
            try:
                if self._client.get(url + "/health", timeout=HEALTH_SECONDS).status_code != 200:
                    continue
                prepare(url)
            except (httpx.HTTPError, ConfigError, TrainingError) as error:
                _LOG.warning("The server %s answers again, but cannot be used: %s", url, error)
                continue
            with self._lock:
                self.lost.remove(url)
                self.alive = [*self.alive, url]
            _LOG.warning("The server %s answers again and is taken back.", url)

    def tell(self, url: str, path: str, body: dict[str, Any]) -> httpx.Response:
        """Send a command to one replica, in use or not.

        Raises:
            TrainingError: it does not answer, or refuses.
        """
        response = self._ask(url, path, body)
        if response is None:
            raise TrainingError(f"The server {url} does not answer {path}.", "Expected an answer.", START)
        return response

    def ask_one(self, url: str, path: str, body: dict[str, Any], read: Callable[[Any], T]) -> T:
        """What `read` makes of the JSON answer of one replica, in use or not.

        Raises:
            TrainingError: it does not answer, refuses, or answers something else.
        """
        return _read(url, path, self.tell(url, path, body), read)

    def ask_each(
        self, path: str, requests: Sequence[tuple[int, dict[str, Any]]], read: Callable[[Any], T]
    ) -> list[T]:
        """What `read` makes of the JSON answer to each request (affinity, body), in order.

        All are asked at the same time; a single one from the caller's own thread.

        Raises:
            TrainingError: no replica is left, or one refuses or answers something else.
        """

        def ask(request: tuple[int, dict[str, Any]]) -> T:
            url, response = self._ask_one(path, *request)
            return _read(url, path, response, read)

        if len(requests) == 1:
            return [ask(requests[0])]
        return list(self._pool.map(ask, requests))

    def _ask_one(self, path: str, affinity: int, body: dict[str, Any]) -> tuple[str, httpx.Response]:
        while True:
            url = self._replica_of(affinity)
            response = self._ask(url, path, body)
            if response is not None:
                return url, response

    def _replica_of(self, affinity: int) -> str:
        """The living replica that this affinity scores highest: others keep theirs when one is lost."""
        alive = self._require_one()
        return max(alive, key=lambda url: hashlib.sha256(f"{affinity} {url}".encode()).digest())

    def _ask(self, url: str, path: str, body: dict[str, Any] | None) -> httpx.Response | None:
        """The response of one replica; None if it does not answer, after which it is left out."""
        problem = ""
        for _ in range(TRIES):
            try:
                response = (
                    self._client.get(url + path) if body is None else self._client.post(url + path, json=body)
                )
            except httpx.HTTPError as error:
                problem = f"{type(error).__name__}: {error}"
                continue
            if response.status_code < 400:
                return response
            problem = f"status {response.status_code}: {response.text:.300}"
            if response.status_code == 404 and path in AFTER_A_RESTART:
                break
            if response.status_code < 500:
                raise TrainingError(
                    f"The server {url} refuses {path}: {problem}",
                    "Expected a vLLM server for this run's base model.",
                    START,
                )
        self.leave_out(url, problem)
        return None

    def leave_out(self, url: str, problem: str) -> None:
        """Send nothing to this replica until it is taken back."""
        with self._lock:
            if url in self.alive:
                self.alive = [other for other in self.alive if other != url]
                self.lost.append(url)
                _LOG.warning("The server %s is left out: %s. %d remain.", url, problem, len(self.alive))

    def _require_one(self) -> list[str]:
        """The living replicas, as they are now: another thread may leave one out."""
        alive = self.alive
        if not alive:
            raise TrainingError(
                f"None of the {len(self.lost)} vLLM servers answers: {', '.join(self.lost)}.",
                "Expected at least one.",
                "Start them again, then type the same command: it continues from its checkpoint.",
            )
        return alive


def _read(url: str, path: str, response: httpx.Response, read: Callable[[Any], T]) -> T:
    try:
        return read(response.json())
    except (ValueError, KeyError, TypeError, IndexError, AttributeError) as error:
        raise TrainingError(
            f"The server {url} answers {path} with something else: {response.text:.200}",
            "Expected a vLLM server for this run's base model.",
            START,
        ) from error
