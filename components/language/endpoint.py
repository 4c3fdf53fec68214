"""The one client of language models behind OpenAI's chat-completions protocol (vLLM, Ollama, hosted ones): strict JSON in, cached.

    endpoint = Endpoint(config.endpoint, Path(".dreamgym/answers"))
    answers = endpoint.ask_all(questions)          # one entry a question: its answer, or Unanswered with the reason
    endpoint.usage.costs()

- **Strict**: an answer is one JSON object of the question's pydantic model, alone or in a code fence. One that is not, or that the
  question's own check refuses, is asked for again with what is wrong with it, `corrections` times.
- **Patient**: transport errors, timeouts, HTTP 408, 429 and 5xx are tried again with exponential backoff, jitter and the endpoint's own
  Retry-After. Every other refusal (a wrong key, no such model) would meet the next question too and ends all at once.
- **Cached**: an answer that can be used is on disk before the next is asked (`answer_cache.py`). So a second run, or one that goes on
  after a crash, pays only for what is new; with all answers there it needs neither key nor network.
- **Silent about the key**: it is read from the environment when a question is really sent, goes into one header, and is taken out of
  whatever the endpoint says back, before that is kept, shown or logged.
"""

from __future__ import annotations

import os
import random
import re
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import asdict, dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, Generic, Self, TypeVar

import httpx
from pydantic import BaseModel, ConfigDict, ValidationError

from components.config import EndpointConfig
from components.errors import EndpointError
from components.language.answer_cache import AnswerCache, fingerprint

RETRIED = {408, 429}
"""Client errors that may pass by themselves; 5xx may, too."""
LONGEST_WAIT_SECONDS = 60.0
SHORTEST_SECRET = 8
"""Shorter keys are placeholders, such as the EMPTY that a local vLLM is given: they may stand in a text."""
_FENCE = re.compile(r"^```(?:json)?\s*\n(.*)\n\s*```$", re.DOTALL)


class StrictAnswer(BaseModel):
    """Base of what an endpoint may answer: no unknown field, no value of another type."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


T = TypeVar("T", bound=StrictAnswer)


class Unanswered(EndpointError):
    """One question has no answer after all tries; others may have one."""


@dataclass(frozen=True)
class Question(Generic[T]):
    """What is asked and what counts as an answer.

    `system` and `user` are the two messages; `version` names the prompt's wording and is part of the cache's key; `check` says
    what is wrong with an answer of the right shape, "" if nothing.
    """

    system: str
    user: str
    version: str
    answer: type[T]
    check: Callable[[T], str] = field(default=lambda _: "", compare=False)

    @property
    def messages(self) -> list[dict[str, str]]:
        """Both as the protocol wants them."""
        return [{"role": "system", "content": self.system}, {"role": "user", "content": self.user}]


@dataclass
class Usage:
    """What an endpoint was paid for: tokens as it counts them, those of answers that could not be used included.

    `unmetered` counts answers that came without a count, `rejected` those that could not be used, `retried` the further tries.
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
class _Reply:
    """A text, or what kept it from being one; `cut` says that it reached the limit of tokens."""

    text: str
    problem: str = ""
    cut: bool = False


class Endpoint:
    """A language model behind an endpoint. May be used from several threads; close it, or use it in a `with`."""

    def __init__(self, config: EndpointConfig, cache: Path) -> None:
        self.config, self.usage = config, Usage()
        self._cache = AnswerCache(cache)
        self._client = httpx.Client(timeout=config.timeout_seconds)
        self._lock, self._stopped = threading.Lock(), threading.Event()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """Give the connections back."""
        self._client.close()

    def ask_all(self, questions: Sequence[Question[T]], *, most_unanswered: int | None = None) -> list[T | Unanswered]:
        """For each question its answer or why there is none, `concurrency` at a time; equal questions are asked once.

        Args:
            most_unanswered: stop as soon as more questions than this stay without an answer (None: never).

        Raises:
            EndpointError: no key, a refusal that would meet every question, or more than `most_unanswered`; answers so far are kept.
            DataError: the cache cannot be written.
        """
        keys = [self._key_of(question) for question in questions]
        settled: dict[str, T | Unanswered] = {}
        pool = ThreadPoolExecutor(self.config.concurrency, thread_name_prefix="endpoint")
        try:
            running = {pool.submit(self._settle, question): key for key, question in dict(zip(keys, questions, strict=True)).items()}
            for done in as_completed(running):
                settled[running[done]] = done.result()
                if most_unanswered is not None:
                    self._allow([result for key in keys if isinstance(result := settled.get(key), Unanswered)], len(keys), most_unanswered)
        finally:
            self._stopped.set()
            pool.shutdown(cancel_futures=True)
            self._stopped.clear()
        return [settled[key] for key in keys]

    def ask(self, question: Question[T]) -> T:
        """The answer to one question.

        Raises:
            Unanswered: there is none after all tries and corrections.
            EndpointError: no key, or a refusal that would meet every question.
            DataError: the cache cannot be written.
        """
        key = self._key_of(question)
        kept = self._cache.get(key)
        if kept is not None:
            value, _ = _read(question, _Reply(kept))
            if value is not None:
                self._count(cached_calls=1)
                return value
        messages, reply, problem = question.messages, _Reply(""), ""
        for _ in range(self.config.corrections + 1):
            reply = self._reply(messages)
            value, problem = _read(question, reply)
            if value is not None:
                self._cache.put(key, reply.text, model=self.config.model, version=question.version)
                return value
            self._count(rejected=1)
            messages = _corrected(question, reply, problem)
        raise self._unusable(reply, problem)

    def _settle(self, question: Question[T]) -> T | Unanswered:
        try:
            return self.ask(question)
        except Unanswered as failure:
            return failure

    def _allow(self, failures: Sequence[Unanswered], asked: int, most: int) -> None:
        if len(failures) > most:
            raise EndpointError(
                f"{len(failures)} of {asked} questions have no usable answer. The last one: {failures[-1].found}",
                f"At most {most} may stay without.",
                f"{failures[-1].next_step} What was answered is kept: the same command asks only for the rest.",
            )

    def _key_of(self, question: Question[T]) -> str:
        return fingerprint({"version": question.version, **self._body(question.messages)})

    def _body(self, messages: Sequence[dict[str, str]]) -> dict[str, Any]:
        body: dict[str, Any] = {"model": self.config.model, "messages": list(messages), "temperature": self.config.temperature}
        body[self.config.limit_field] = self.config.max_tokens
        return body | ({"response_format": {"type": "json_object"}} if self.config.json_mode else {})

    def _reply(self, messages: Sequence[dict[str, str]]) -> _Reply:
        """One answer, after as many tries as it takes."""
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
                problem = f"HTTP {response.status_code}: {_excerpt(text)}"
                if response.status_code not in RETRIED and response.status_code < 500:
                    raise self._refused(response.status_code, problem)
            if attempt < self.config.retries:
                self._count(retried=1)
                if self._stopped.wait(self._delay(attempt, after)):
                    break
        raise Unanswered(
            f"{self._place} gave no answer in {attempt + 1} tries: {problem}.",
            next_step="See that the endpoint runs and answers there (endpoint.url), or be more patient with it: endpoint.timeout_seconds, "
            "endpoint.retries, or a lower endpoint.concurrency.",
        )

    def _post(self, body: dict[str, Any], headers: dict[str, str]) -> httpx.Response:
        """One try. httpx limits the wait for each part of a reply; here the whole of it has one limit, as a proxy may drip."""
        until = time.monotonic() + self.config.timeout_seconds
        with self._client.stream("POST", f"{self.config.url.rstrip('/')}/chat/completions", json=body, headers=headers) as response:
            parts = []
            for part in response.iter_bytes():
                parts.append(part)
                if time.monotonic() > until:
                    raise httpx.ReadTimeout("the reply drips")
            kept = {"Retry-After": response.headers["Retry-After"]} if "Retry-After" in response.headers else {}
            return httpx.Response(response.status_code, headers=kept, content=b"".join(parts))

    def _metered(self, response: httpx.Response, text: str) -> _Reply:
        """The text of a completed call; its tokens are counted."""
        try:
            body = response.json()
            choice = body["choices"][0]
            content, cut = choice["message"]["content"], choice.get("finish_reason") == "length"
        except (ValueError, KeyError, IndexError, TypeError, AttributeError):
            self._count(calls=1, unmetered=1)
            return _Reply(text, "it is no chat completion")
        usage = body.get("usage")
        counts = [usage.get(name) if isinstance(usage, dict) else None for name in ("prompt_tokens", "completion_tokens")]
        prompt, completion = (count if isinstance(count, int) and count >= 0 else 0 for count in counts)
        self._count(calls=1, prompt_tokens=prompt, completion_tokens=completion, unmetered=int(None in counts))
        if not isinstance(content, str):
            return _Reply("", "it holds no text")
        return _Reply(_without(self._secret(), content), cut=cut)

    def _secret(self) -> str:
        """The key. Raises EndpointError if its variable is missing or holds what cannot be one."""
        name = self.config.key_variable
        secret = os.environ.get(name, "").strip() if name else ""
        if name and not secret:
            raise EndpointError(
                f"The environment variable {name} (endpoint.key_variable) is not set.",
                f"Expected the API key of {self.config.url} in it.",
                f"Type `export {name}=...` with your key, or leave endpoint.key_variable empty if the endpoint wants none.",
            )
        if not re.fullmatch(r"[\x21-\x7e]*", secret):
            raise EndpointError(
                f"The environment variable {name} (endpoint.key_variable) holds no key: {len(secret)} characters with a blank or a letter "
                "outside ASCII among them.",
                next_step=f"Type `export {name}=...` with your key alone.",
            )
        return secret

    @property
    def _place(self) -> str:
        return f"{self.config.model} at {self.config.url}"

    def _refused(self, status: int, problem: str) -> EndpointError:
        """Of one question where the request itself may be at fault (too long, say), else of the whole endpoint."""
        kind = Unanswered if status in (400, 413, 422) else EndpointError
        named = f"the variable {self.config.key_variable}" if self.config.key_variable else "no key, as endpoint.key_variable is empty"
        cures = {
            401: f"Check the key ({named}).",
            403: f"Check the key and its rights ({named}).",
            404: "Check endpoint.url (it often ends in /v1) and endpoint.model.",
        }
        other = "Read what it says; endpoint.model, max_tokens, limit_field, temperature and json_mode may be what it does not take."
        return kind(f"{self._place} refuses. {problem}.", next_step=cures.get(status, other))

    def _unusable(self, reply: _Reply, problem: str) -> Unanswered:
        tries = self.config.corrections + 1
        found = f"{self._place} gave {tries} answers that cannot be used; the last: {problem}. It begins: {_excerpt(reply.text)}"
        cure = "Raise endpoint.max_tokens." if reply.cut else "Ask a more able model (endpoint.model), or more often (endpoint.corrections)."
        return Unanswered(found, "Expected one JSON object of the form that the prompt describes.", cure)

    def _delay(self, attempt: int, after: str) -> float:
        """Seconds to wait: half to one and a half times the doubled backoff, or what the endpoint asks for if that is longer."""
        own = min(LONGEST_WAIT_SECONDS, self.config.backoff_seconds * 2**attempt) * random.uniform(0.5, 1.5)
        asked = float(after) if re.fullmatch(r"\d+(\.\d+)?", after) else 0.0
        return max(own, min(asked, LONGEST_WAIT_SECONDS))

    def _count(self, **counts: int) -> None:
        with self._lock:
            for name, more in counts.items():
                setattr(self.usage, name, getattr(self.usage, name) + more)


def _read(question: Question[T], reply: _Reply) -> tuple[T | None, str]:
    """The answer, or what is wrong with it."""
    if reply.problem:
        return None, reply.problem
    text = reply.text.strip()
    fenced = _FENCE.match(text)
    try:
        value = question.answer.model_validate_json(fenced[1] if fenced else text)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        place = ".".join(str(part) for part in first["loc"])
        cut = "it was cut off at its limit of tokens; " if reply.cut else ""
        return None, f"{cut}{place + ': ' if place else ''}{first['msg']}"
    problem = question.check(value)
    return (None, problem) if problem else (value, "")


def _corrected(question: Question[T], reply: _Reply, problem: str) -> list[dict[str, str]]:
    """The question again; with the answer and what is wrong with it, if there was one."""
    if not reply.text or reply.problem:
        return question.messages
    wrong = f"This answer cannot be used: {problem}. Answer again, with the JSON object alone, in exactly the form described."
    return [*question.messages, {"role": "assistant", "content": reply.text}, {"role": "user", "content": wrong}]


def _without(secret: str, text: str) -> str:
    return text.replace(secret, "[key]") if len(secret) >= SHORTEST_SECRET else text


def _excerpt(text: str) -> str:
    words = " ".join(text.split())
    return repr(words[:200] + ("..." if len(words) > 200 else ""))
