"""The client of language models that answer in JSON, over OpenAI's chat-completions protocol.

It works with vLLM, Ollama and hosted models.

    endpoint = Endpoint(config.endpoint, Path(".dreamgym/answers"))
    answers = endpoint.ask_all(questions)  # for each question its answer, or an UnansweredError
    endpoint.usage.costs()

- **Strict**: an answer is one JSON object of the question's pydantic model, alone, in a code fence or behind
  the model's thinking (`answer_text.py`). Any other answer, or one that the question's own check refuses, is
  requested again with the reason, up to `corrections` times.
- **Enforced**, with `endpoint.json_mode: schema`: a server that constrains decoding writes nothing else.
- **Retried**: temporary failures are tried again (`chat_completions.py`). A refusal that would meet every
  question ends all of them.
- **Cached**: a usable answer is on disk before the next question is asked (`answer_cache.py`). A second run,
  or one that continues after a crash, pays only for new questions. If all answers are there, it needs neither
  key nor network.
"""

from __future__ import annotations

import threading
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
from components.language.endpoint.answer_text import object_text
from components.language.endpoint.chat_completions import Chat, Reply, UnansweredError, Usage, excerpt


class StrictAnswer(BaseModel):
    """Base of the answers of an endpoint: no unknown field, no value of another type."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


T = TypeVar("T", bound=StrictAnswer)


@dataclass(frozen=True)
class Question(Generic[T]):
    """A question, and what counts as an answer to it.

    `system` and `user` are the two messages. `version` names the wording of the prompt and is part of the
    cache's key. `check` returns what is wrong with an answer of the right type, "" if nothing is.
    """

    system: str
    user: str
    version: str
    answer: type[T]
    check: Callable[[T], str] = field(default=lambda _: "", compare=False)

    @property
    def messages(self) -> list[dict[str, str]]:
        """Both messages in the form of the protocol."""
        return [{"role": "system", "content": self.system}, {"role": "user", "content": self.user}]


class Endpoint:
    """A language model behind an endpoint. Threads may share it; close it, or use it in a `with`."""

    def __init__(self, config: EndpointConfig, cache: Path) -> None:
        self.config = config
        self._chat = Chat(config)
        self._cache = AnswerCache(cache)

    @property
    def usage(self) -> Usage:
        """What was requested so far."""
        return self._chat.usage

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections."""
        self._chat.close()

    def ask_all(
        self, questions: Sequence[Question[T]], *, most_unanswered: int | None = None
    ) -> list[T | UnansweredError]:
        """Ask all questions, `concurrency` at a time; equal questions once.

        Args:
            questions: any number.
            most_unanswered: stop as soon as more questions than this have no answer; None is no limit.

        Returns:
            For each question its answer, or the error that says why there is none.

        Raises:
            EndpointError: there is no key, the endpoint would refuse every question, or more than
                `most_unanswered` have no answer. Answers so far are kept.
            DataError: the cache cannot be written.
        """
        keys = [self._key_of(question) for question in questions]
        results: dict[str, T | UnansweredError] = {}
        pool = ThreadPoolExecutor(self.config.concurrency, thread_name_prefix="endpoint")
        stopped = threading.Event()  # of this call alone: other threads may be asking
        try:
            running = {
                pool.submit(self._answer_or_error, question, stopped): key
                for key, question in dict(zip(keys, questions, strict=True)).items()
            }
            for future in as_completed(running):
                result = future.result()
                results[running[future]] = result
                if isinstance(result, UnansweredError) and most_unanswered is not None:
                    failed = sum(isinstance(results.get(key), UnansweredError) for key in keys)
                    self._require_at_most(most_unanswered, failed, len(keys), result)
        finally:
            stopped.set()
            pool.shutdown(cancel_futures=True)
        return [results[key] for key in keys]

    def ask(self, question: Question[T], stopped: threading.Event | None = None) -> T:
        """The answer to one question.

        Args:
            question: with its check.
            stopped: if it is set, no further try is made.

        Raises:
            UnansweredError: there is none after all tries and corrections.
            EndpointError: there is no key, or the endpoint would refuse every question.
            DataError: the cache cannot be written.
        """
        key = self._key_of(question)
        cached_text = self._cache.get(key)
        if cached_text is not None:
            value, _ = _parse_answer(question, Reply(cached_text))
            if value is not None:
                self._chat.count(cached_calls=1)
                return value
        messages = question.messages
        reply = Reply("")
        problem = ""
        for _ in range(self.config.corrections + 1):
            reply = self._chat.reply(messages, question.answer.model_json_schema(), stopped)
            value, problem = _parse_answer(question, reply)
            if value is not None:
                self._cache.put(key, reply.text, model=self.config.model, version=question.version)
                return value
            self._chat.count(rejected=1)
            messages = _correction_request(question, reply, problem)
        raise self._unusable_answer(reply, problem)

    def _answer_or_error(self, question: Question[T], stopped: threading.Event) -> T | UnansweredError:
        """The answer to one question, or the error of `ask` that concerns this question alone."""
        try:
            return self.ask(question, stopped)
        except UnansweredError as failure:
            return failure

    def _require_at_most(self, most: int, failed: int, total: int, last: UnansweredError) -> None:
        """Raise EndpointError if more than `most` of `total` questions have failed."""
        if failed > most:
            raise EndpointError(
                f"{failed} of {total} questions have no usable answer. The last one: {last.found}",
                f"At most {most} may stay without.",
                f"{last.next_step} What was answered is kept: the same command asks only for the rest.",
            )

    def _key_of(self, question: Question[T]) -> str:
        """The fingerprint of a question with this endpoint's model and sampling settings."""
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

    def _unusable_answer(self, reply: Reply, problem: str) -> UnansweredError:
        """The error for a question whose last answer was `reply`."""
        tries = self.config.corrections + 1
        return UnansweredError(
            f"{self._chat.place} gave {tries} answers that cannot be used; the last: {problem}. It "
            f"begins: {excerpt(reply.text)}",
            "Expected one JSON object of the form that the prompt describes.",
            "Raise endpoint.max_tokens."
            if reply.cut
            else "Ask a more able model (endpoint.model), or raise endpoint.corrections.",
        )


def _parse_answer(question: Question[T], reply: Reply) -> tuple[T | None, str]:
    """The answer and "", or None and what is wrong with it."""
    if reply.problem:
        return None, reply.problem
    try:
        value = question.answer.model_validate_json(object_text(reply.text))
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        place = ".".join(str(part) for part in first["loc"])
        cut = "it was cut off at its limit of tokens; " if reply.cut else ""
        return None, f"{cut}{place + ': ' if place else ''}{first['msg']}"
    problem = question.check(value)
    return (None, problem) if problem else (value, "")


def _correction_request(question: Question[T], reply: Reply, problem: str) -> list[dict[str, str]]:
    """The question again, followed by the answer and what is wrong with it, if there was one."""
    if not reply.text or reply.problem:
        return question.messages
    complaint = (
        f"This answer cannot be used: {problem}. Answer again, with the JSON object alone, in exactly "
        "the form described."
    )
    return [
        *question.messages,
        {"role": "assistant", "content": reply.text},
        {"role": "user", "content": complaint},
    ]
