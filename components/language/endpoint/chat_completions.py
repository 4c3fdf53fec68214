"""One call of a language model over OpenAI's chat-completions protocol: tried again where that may help,
counted, and silent of its key.

Transport errors, timeouts, HTTP 408, 429 and 5xx are tried again with exponential backoff, jitter and the
endpoint's own Retry-After. Every other refusal (a wrong key, no such model) would meet the next question too,
and so is no matter of one question.

The key is read from the environment when a call is really made, goes into one header, and is taken out of
whatever the endpoint says back before that is kept, shown or logged.
"""

from __future__ import annotations

import os
import random
import re
import threading
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import httpx

from components.config import EndpointConfig
from components.errors import EndpointError

RETRIED = {408, 429}
"""Client errors that may pass by themselves; 5xx may, too."""
LONGEST_WAIT_SECONDS = 60.0
SHORTEST_SECRET = 8
"""Shorter keys are placeholders, such as the EMPTY that a local vLLM is given: they may stand in a text."""

Messages = Sequence[dict[str, str]]


class Unanswered(EndpointError):
    """One question has no answer after all tries; others may have one."""


@dataclass
class Usage:
    """What an endpoint was paid for: tokens as it counts them, those of answers that could not be used
    included.

    `unmetered` counts answers that came without a count, `rejected` those that could not be used, `retried`
    the further tries.
    """

    calls: int = 0
    cached_calls: int = 0
    prompt_tokens: int = 0
    completion_tokens: int = 0
    unmetered: int = 0
    rejected: int = 0
    retried: int = 0

    def costs(self) -> dict[str, int]:
        """The part that a run's manifest keeps, under its names there."""
        kept = ("calls", "cached_calls", "prompt_tokens", "completion_tokens")
        return {f"endpoint_{name}": value for name, value in asdict(self).items() if name in kept}


@dataclass(frozen=True)
class Reply:
    """The text of an answer; `problem` says why there is none, `cut` that it reached the limit of tokens."""

    text: str
    problem: str = ""
    cut: bool = False


class Chat:
    """A language model behind an endpoint; `usage` counts what it was paid for. May be used from several
    threads.
    """

    def __init__(self, config: EndpointConfig) -> None:
        self.config, self.usage = config, Usage()
        self.stopped = threading.Event()
        """Set: waiting calls give up instead of trying again."""
        self._client = httpx.Client(timeout=config.timeout_seconds, limits=httpx.Limits(max_connections=None))
        self._lock = threading.Lock()

    def close(self) -> None:
        """Give the connections back."""
        self._client.close()

    def reply(self, messages: Messages) -> Reply:
        """One answer, after as many tries as it takes.

        Raises:
            Unanswered: none came, or the endpoint refuses this very request.
            EndpointError: no key, or a refusal that would meet every request.
        """
        secret, problem = self._secret(), ""
        headers = {"Authorization": f"Bearer {secret}"} if secret else {}
        for attempt in range(self.config.retries + 1):
            after = ""
            try:
                response = self._post(self._body(messages), headers)
            except httpx.TimeoutException:
                problem = f"it did not answer within {self.config.timeout_seconds:g} s"
            except httpx.RequestError as error:
                problem = _without(secret, f"{type(error).__name__}: {error}")
            else:
                text, after = _without(secret, response.text), response.headers.get("Retry-After", "")
                if response.status_code == 200:
                    return self._metered(response, text)
                problem = f"HTTP {response.status_code}: {excerpt(text)}"
                if response.status_code not in RETRIED and response.status_code < 500:
                    raise self._refused(response.status_code, problem)
            if attempt < self.config.retries:
                self.count(retried=1)
                if self.stopped.wait(self._delay(attempt, after)):
                    break
        raise Unanswered(
            f"{self.place} gave no answer in {attempt + 1} tries: {problem}.",
            next_step="See that the endpoint runs and answers there (endpoint.url), or be more patient with "
            "it: endpoint.timeout_seconds, "
            "endpoint.retries, or a lower endpoint.concurrency.",
        )

    def _post(self, body: dict[str, Any], headers: dict[str, str]) -> httpx.Response:
        """One try. httpx limits the wait for each part of a reply; here the whole of it has one limit, as a
        proxy may drip.
        """
        until = time.monotonic() + self.config.timeout_seconds
        with self._client.stream(
            "POST", f"{self.config.url.rstrip('/')}/chat/completions", json=body, headers=headers
        ) as response:
            parts = []
            for part in response.iter_bytes():
                parts.append(part)
                if time.monotonic() > until:
                    raise httpx.ReadTimeout("the reply drips")
            kept = (
                {"Retry-After": response.headers["Retry-After"]} if "Retry-After" in response.headers else {}
            )
            return httpx.Response(response.status_code, headers=kept, content=b"".join(parts))

    def _metered(self, response: httpx.Response, text: str) -> Reply:
        """The text of a completed call; its tokens are counted."""
        try:
            body = response.json()
            choice = body["choices"][0]
            content, cut = choice["message"]["content"], choice.get("finish_reason") == "length"
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
        return Reply(_without(self._secret(), content), cut=cut)

    def _secret(self) -> str:
        """The key. Raises EndpointError if its variable is missing or holds what cannot be one."""
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
                "characters with a blank or a letter "
                "outside ASCII among them.",
                next_step=f"Type `export {name}=...` with your key alone.",
            )
        return secret

    @property
    def place(self) -> str:
        """Model and address, for messages."""
        return f"{self.config.model} at {self.config.url}"

    def _body(self, messages: Messages) -> dict[str, Any]:
        body: dict[str, Any] = {
            "model": self.config.model,
            "messages": list(messages),
            "temperature": self.config.temperature,
        }
        body[self.config.limit_field] = self.config.max_tokens
        return body | ({"response_format": {"type": "json_object"}} if self.config.json_mode else {})

    def _refused(self, status: int, problem: str) -> EndpointError:
        """Of one question where the request itself may be at fault (too long, say), else of the whole
        endpoint.
        """
        kind = Unanswered if status in (400, 413, 422) else EndpointError
        named = (
            f"the variable {self.config.key_variable}"
            if self.config.key_variable
            else "no key, as endpoint.key_variable is empty"
        )
        cures = {
            401: f"Check the key ({named}).",
            403: f"Check the key and its rights ({named}).",
            404: "Check endpoint.url (it often ends in /v1) and endpoint.model.",
        }
        other = (
            "Read what it says; endpoint.model, max_tokens, limit_field, temperature and json_mode may "
            "be what it does not take."
        )
        return kind(f"{self.place} refuses. {problem}.", next_step=cures.get(status, other))

    def _delay(self, attempt: int, after: str) -> float:
        """Seconds to wait: half to one and a half times the doubled backoff, or what the endpoint asks for if
        that is longer.
        """
        own = min(LONGEST_WAIT_SECONDS, self.config.backoff_seconds * 2**attempt) * random.uniform(0.5, 1.5)
        asked = float(after) if re.fullmatch(r"\d+(\.\d+)?", after) else 0.0
        return max(own, min(asked, LONGEST_WAIT_SECONDS))

    def count(self, **counts: int) -> None:
        """Add to `usage`."""
        with self._lock:
            for name, more in counts.items():
                setattr(self.usage, name, getattr(self.usage, name) + more)


def _without(secret: str, text: str) -> str:
    return text.replace(secret, "[key]") if len(secret) >= SHORTEST_SECRET else text


def excerpt(text: str) -> str:
    """The beginning of `text` in one line, in quotes."""
    words = " ".join(text.split())
    return repr(words[:200] + ("..." if len(words) > 200 else ""))
