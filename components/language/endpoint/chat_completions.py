"""Calls of a language model over OpenAI's chat-completions protocol: retried, counted, the key kept secret.

Transport errors, timeouts, HTTP 408, 429 and 5xx are retried with exponential backoff, jitter and the
endpoint's own Retry-After. Any other refusal (a wrong key, an unknown model) would meet every question, so it
ends all of them.

The key is read from the environment at the moment of a call and sent in one header. It is removed from
everything that the endpoint answers before that is kept, shown or logged.
"""

from __future__ import annotations

import os
import random
import re
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import httpx

from components.config import EndpointConfig
from components.errors import EndpointError

RETRIED = {408, 429}
"""Client errors that may be temporary; 5xx may be, too."""
LONGEST_WAIT_SECONDS = 60.0
SHORTEST_SECRET = 8
"""Shorter keys are placeholders, such as the EMPTY of a local vLLM, and may occur in a text."""

Messages = Sequence[dict[str, str]]


class UnansweredError(EndpointError):
    """One question has no usable answer after all tries; others may have one."""


class NoReplyError(UnansweredError):
    """The endpoint refused one question, or did not reply to it in any try."""


class UnreachableError(NoReplyError):
    """The endpoint did not reply to one question in any try: it failed, or was too slow."""


@dataclass
class Usage:
    """What was requested from an endpoint: calls, and tokens as the endpoint counts them.

    Tokens of unusable answers are included. `unmetered` counts answers without a token count, `rejected`
    unusable answers, `retried` further tries.
    """

    calls: int = 0
    cached_calls: int = 0
    prompt_tokens: int = 0
    completion_tokens: int = 0
    unmetered: int = 0
    rejected: int = 0
    retried: int = 0

    def costs(self) -> dict[str, int]:
        """The counts that a run's manifest keeps, by their names there."""
        names = ("calls", "cached_calls", "prompt_tokens", "completion_tokens")
        return {f"endpoint_{name}": value for name, value in asdict(self).items() if name in names}


@dataclass(frozen=True)
class Reply:
    """The text of an answer.

    `problem` is the reason if there is no text, "" otherwise. `cut` is True if the answer reached the limit
    of tokens.
    """

    text: str
    problem: str = ""
    cut: bool = False


class Chat:
    """A language model behind an endpoint. Threads may share it.

    `usage` counts what was requested.
    """

    def __init__(self, config: EndpointConfig) -> None:
        self.config = config
        self.usage = Usage()
        self._client = httpx.Client(timeout=config.timeout_seconds, limits=httpx.Limits(max_connections=None))
        self._lock = threading.Lock()

    def close(self) -> None:
        """Close the connections."""
        self._client.close()

    def reply(
        self,
        messages: Messages,
        schema: Mapping[str, Any] | None = None,
        stopped: threading.Event | None = None,
    ) -> Reply:
        """One answer to `messages`, with retries.

        Args:
            messages: the conversation.
            schema: JSON schema of the answer, sent with `json_mode: schema`.
            stopped: if it is set, a waiting call ends instead of trying again.

        Raises:
            UnreachableError: all tries failed.
            NoReplyError: the endpoint refuses this request.
            EndpointError: there is no key, or the endpoint would refuse every request.
        """
        secret = self._secret()
        problem = ""
        stopped = stopped or threading.Event()
        headers = {"Authorization": f"Bearer {secret}"} if secret else {}
        for attempt in range(self.config.retries + 1):
            retry_after = ""
            try:
                response = self._post(self._body(messages, schema), headers)
            except httpx.TimeoutException:
                problem = f"it did not answer within {self.config.timeout_seconds:g} s"
            except httpx.RequestError as error:
                problem = _redact(secret, f"{type(error).__name__}: {error}")
            else:
                text = _redact(secret, response.text)
                retry_after = response.headers.get("Retry-After", "")
                if response.status_code == 200:
                    return self._read_reply(response, text)
                problem = f"HTTP {response.status_code}: {excerpt(text)}"
                if response.status_code not in RETRIED and response.status_code < 500:
                    raise self._refusal(response.status_code, problem)
            if attempt < self.config.retries:
                self.count(retried=1)
                if stopped.wait(self._delay_seconds(attempt, retry_after)):
                    break
        raise UnreachableError(
            f"{self.place} gave no answer in {attempt + 1} tries: {problem}.",
            next_step="Check that the endpoint runs and answers at endpoint.url, or give it more time: raise "
            "endpoint.timeout_seconds or endpoint.retries, or lower endpoint.concurrency.",
        )

    def _post(self, body: dict[str, Any], headers: dict[str, str]) -> httpx.Response:
        """One try, within `timeout_seconds` in all.

        httpx limits only the wait for each part of a reply, and a proxy may send many small parts.
        """
        deadline = time.monotonic() + self.config.timeout_seconds
        url = f"{self.config.url.rstrip('/')}/chat/completions"
        with self._client.stream("POST", url, json=body, headers=headers) as response:
            parts = []
            for part in response.iter_bytes():
                parts.append(part)
                if time.monotonic() > deadline:
                    raise httpx.ReadTimeout("the reply arrives too slowly")
            kept_headers = {
                name: response.headers[name] for name in ("Retry-After",) if name in response.headers
            }
            return httpx.Response(response.status_code, headers=kept_headers, content=b"".join(parts))

    def _read_reply(self, response: httpx.Response, text: str) -> Reply:
        """The text of a completed call; counts its tokens."""
        try:
            body = response.json()
            choice = body["choices"][0]
            content = choice["message"]["content"]
            is_cut = choice.get("finish_reason") == "length"
        except (ValueError, KeyError, IndexError, TypeError, AttributeError):
            self.count(calls=1, unmetered=1)
            return Reply(text, "it is no chat completion")
        usage = body.get("usage")
        counts = [
            usage.get(name) if isinstance(usage, dict) else None
            for name in ("prompt_tokens", "completion_tokens")
        ]
        prompt, completion = (count if isinstance(count, int) and count >= 0 else 0 for count in counts)
        self.count(calls=1, prompt_tokens=prompt, completion_tokens=completion, unmetered=int(None in counts))
        if not isinstance(content, str):
            return Reply("", "it holds no text")
        return Reply(_redact(self._secret(), content), cut=is_cut)

    def _secret(self) -> str:
        """The key, or "" if the endpoint wants none.

        Raises:
            EndpointError: its variable is missing, or holds characters that no key has.
        """
        name = self.config.key_variable
        secret = os.environ.get(name, "").strip() if name else ""
        if name and not secret:
            raise EndpointError(
                f"The environment variable {name} (endpoint.key_variable) is not set.",
                f"Expected the API key of {self.config.url} in it.",
                f"Type `export {name}=...` with your key, or leave endpoint.key_variable empty if the "
                "endpoint wants none.",
            )
        if not re.fullmatch(r"[\x21-\x7e]*", secret):
            raise EndpointError(
                f"The environment variable {name} (endpoint.key_variable) holds no key: {len(secret)} "
                "characters with a blank or a letter outside ASCII among them.",
                next_step=f"Type `export {name}=...` with your key alone.",
            )
        return secret

    @property
    def place(self) -> str:
        """Model and address, for messages."""
        return f"{self.config.model} at {self.config.url}"

    def _body(self, messages: Messages, schema: Mapping[str, Any] | None) -> dict[str, Any]:
        """The JSON body of a request."""
        body: dict[str, Any] = {
            "model": self.config.model,
            "messages": list(messages),
            "temperature": self.config.temperature,
        }
        body[self.config.limit_field] = self.config.max_tokens
        if self.config.json_mode == "schema" and schema is not None:
            form = {"name": "answer", "schema": schema, "strict": True}
            return body | {"response_format": {"type": "json_schema", "json_schema": form}}
        return body | ({"response_format": {"type": "json_object"}} if self.config.json_mode else {})

    def _refusal(self, status: int, problem: str) -> EndpointError:
        """The error for a refused request.

        A `NoReplyError` if the request itself may be at fault, for example too long; otherwise an error of
        the whole endpoint.
        """
        error_type = NoReplyError if status in (400, 413, 422) else EndpointError
        key_source = (
            f"the variable {self.config.key_variable}"
            if self.config.key_variable
            else "no key, as endpoint.key_variable is empty"
        )
        next_steps = {
            401: f"Check the key ({key_source}).",
            403: f"Check the key and its rights ({key_source}).",
            404: "Check endpoint.url (it often ends in /v1) and endpoint.model.",
        }
        default_step = (
            "Read what it says. It may not accept endpoint.model, max_tokens, limit_field, temperature or "
            "json_mode."
        )
        return error_type(f"{self.place} refuses. {problem}.", next_step=next_steps.get(status, default_step))

    def _delay_seconds(self, attempt: int, retry_after: str) -> float:
        """Seconds to wait: the doubled backoff times 0.5 to 1.5, or `retry_after` if that is longer."""
        backoff = min(LONGEST_WAIT_SECONDS, self.config.backoff_seconds * 2**attempt) * random.uniform(
            0.5, 1.5
        )
        requested = float(retry_after) if re.fullmatch(r"\d+(\.\d+)?", retry_after) else 0.0
        return max(backoff, min(requested, LONGEST_WAIT_SECONDS))

    def count(self, **counts: int) -> None:
        """Add `counts` to the fields of `usage`."""
        with self._lock:
            for name, increase in counts.items():
                setattr(self.usage, name, getattr(self.usage, name) + increase)


def _redact(secret: str, text: str) -> str:
    """`text` with every occurrence of the key replaced by "[key]"."""
    return text.replace(secret, "[key]") if len(secret) >= SHORTEST_SECRET else text


def excerpt(text: str) -> str:
    """The first 200 characters of `text` on one line, in quotes."""
    words = " ".join(text.split())
    return repr(words[:200] + ("..." if len(words) > 200 else ""))
