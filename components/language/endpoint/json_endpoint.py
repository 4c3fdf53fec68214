"""The one client of language models behind OpenAI's chat-completions protocol (vLLM, Ollama, hosted ones):
strict JSON in, cached.

    endpoint = Endpoint(config.endpoint, Path(".dreamgym/answers"))
    answers = endpoint.ask_all(questions)          # one entry a question: its answer, or Unanswered with the
    reason endpoint.usage.costs()

- **Strict**: an answer is one JSON object of the question's pydantic model, alone or in a code fence. One
  that is not, or that the
  question's own check refuses, is asked for again with what is wrong with it, `corrections` times.
- **Patient**: what may pass by itself is tried again (`chat_completions.py`); what would meet the next
  question too ends
  all at once.
- **Cached**: an answer that can be used is on disk before the next is asked (`answer_cache.py`). So a second
  run, or one that goes on
  after a crash, pays only for what is new; with all answers there it needs neither key nor network.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Generic, Self, TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError

from components.config import EndpointConfig
from components.errors import EndpointError
from components.language.endpoint.answer_cache import AnswerCache, fingerprint
from components.language.endpoint.chat_completions import Chat, Reply, Unanswered, Usage, excerpt

_FENCE = re.compile(r"^```(?:json)?\s*\n(.*)\n\s*```$", re.DOTALL)


class StrictAnswer(BaseModel):
    """Base of what an endpoint may answer: no unknown field, no value of another type."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


T = TypeVar("T", bound=StrictAnswer)


@dataclass(frozen=True)
class Question(Generic[T]):
    """What is asked and what counts as an answer.

    `system` and `user` are the two messages; `version` names the prompt's wording and is part of the cache's
    key; `check` says what is wrong with an answer of the right shape, "" if nothing.
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


class Endpoint:
    """A language model behind an endpoint. May be used from several threads; close it, or use it in a
    `with`.
    """

    def __init__(self, config: EndpointConfig, cache: Path) -> None:
        self.config, self._chat, self._cache = config, Chat(config), AnswerCache(cache)

    @property
    def usage(self) -> Usage:
        """What it was paid for so far."""
        return self._chat.usage

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Give the connections back."""
        self._chat.close()

    def ask_all(
        self, questions: Sequence[Question[T]], *, most_unanswered: int | None = None
    ) -> list[T | Unanswered]:
        """For each question its answer or why there is none, `concurrency` at a time; equal questions are
        asked once.

        Args:
            most_unanswered: stop as soon as more questions than this stay without an answer (None: never).

        Raises:
            EndpointError: no key, a refusal that would meet every question, or more than `most_unanswered`;
                answers so far are kept.
            DataError: the cache cannot be written.
        """
        keys = [self._key_of(question) for question in questions]
        settled: dict[str, T | Unanswered] = {}
        pool = ThreadPoolExecutor(self.config.concurrency, thread_name_prefix="endpoint")
        try:
            running = {
                pool.submit(self._settle, question): key
                for key, question in dict(zip(keys, questions, strict=True)).items()
            }
            for done in as_completed(running):
                settled[running[done]] = result = done.result()
                if isinstance(result, Unanswered) and most_unanswered is not None:
                    failed = sum(isinstance(settled.get(key), Unanswered) for key in keys)
                    self._allow(failed, len(keys), most_unanswered, result)
        finally:
            self._chat.stopped.set()
            pool.shutdown(cancel_futures=True)
            self._chat.stopped.clear()
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
            value, _ = _read(question, Reply(kept))
            if value is not None:
                self._chat.count(cached_calls=1)
                return value
        messages, reply, problem = question.messages, Reply(""), ""
        for _ in range(self.config.corrections + 1):
            reply = self._chat.reply(messages)
            value, problem = _read(question, reply)
            if value is not None:
                self._cache.put(key, reply.text, model=self.config.model, version=question.version)
                return value
            self._chat.count(rejected=1)
            messages = _corrected(question, reply, problem)
        raise self._unusable(reply, problem)

    def _settle(self, question: Question[T]) -> T | Unanswered:
        try:
            return self.ask(question)
        except Unanswered as failure:
            return failure

    def _allow(self, failed: int, asked: int, most: int, last: Unanswered) -> None:
        if failed > most:
            raise EndpointError(
                f"{failed} of {asked} questions have no usable answer. The last one: {last.found}",
                f"At most {most} may stay without.",
                f"{last.next_step} What was answered is kept: the same command asks only for the rest.",
            )

    def _key_of(self, question: Question[T]) -> str:
        sampling = {
            "temperature": self.config.temperature,
            "max_tokens": self.config.max_tokens,
            "json_mode": self.config.json_mode,
        }
        return fingerprint(
            {
                "model": self.config.model,
                "version": question.version,
                "messages": question.messages,
                **sampling,
            }
        )

    def _unusable(self, reply: Reply, problem: str) -> Unanswered:
        tries = self.config.corrections + 1
        found = (
            f"{self._chat.place} gave {tries} answers that cannot be used; the last: {problem}. It "
            f"begins: {excerpt(reply.text)}"
        )
        cure = (
            "Raise endpoint.max_tokens."
            if reply.cut
            else "Ask a more able model (endpoint.model), or raise endpoint.corrections."
        )
        return Unanswered(found, "Expected one JSON object of the form that the prompt describes.", cure)


def _read(question: Question[T], reply: Reply) -> tuple[T | None, str]:
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


def _corrected(question: Question[T], reply: Reply, problem: str) -> list[dict[str, str]]:
    """The question again; with the answer and what is wrong with it, if there was one."""
    if not reply.text or reply.problem:
        return question.messages
    wrong = (
        f"This answer cannot be used: {problem}. Answer again, with the JSON object alone, in exactly "
        "the form described."
    )
    return [
        *question.messages,
        {"role": "assistant", "content": reply.text},
        {"role": "user", "content": wrong},
    ]
