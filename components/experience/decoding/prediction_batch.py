"""Predictions for a batch of episodes in progress: decode answers, keep each history in the cache.

A row of the session holds the trunk of one episode (task and history). The branch of a step (the turn and its
answer) is rewound after each prediction. Further answers are generated in spare rows, several at once.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from components.config import ExperienceModelConfig
from components.experience.decoding.agreement import disagreeing_rows
from components.experience.decoding.answer_checks import (
    AnswerChecks,
    DecodingCounts,
    GroundingCheck,
    ReadAnswer,
    Refusal,
    RowCheck,
    StepContext,
)
from components.experience.formats.world_format import Answer, WorldFormat
from components.language.engines.engine_protocol import Generation, Session
from components.records import Task, Transition

RETRY_TEMPERATURE = 1.0
PARALLEL_TRIES = 2
"""Tries of an answer at once with a grounding check: later tries go on behind the best prefix so far."""


@dataclass(frozen=True)
class Query:
    """The question of one row: what does `action` do in `state`, given these demonstrations."""

    state: str
    action: str
    demonstrations: Sequence[Transition] = ()


class PredictionBatch:
    """A batch of episodes in progress: predict steps, then add those that happened.

    Attributes:
        written: the first answer of each row in the last `predict` as generated, parsable or not; where the
            answer was sampled, the first sample.
        greedy: the same, always the greedy one.
        unchecked: the greedy answer of each row in the last `predict`, whatever the caller's checks say.
            Where it does not parse or quotes wrongly, the answer that `predict` gave in its place.
    """

    def __init__(
        self,
        session: Session,
        rows: int,
        text: WorldFormat,
        config: ExperienceModelConfig,
        counts: DecodingCounts,
        grounding: GroundingCheck | None,
    ) -> None:
        """Args: session: it has `rows` rows for episodes, then the spare rows."""
        self._session = session
        self._rows = rows
        self._text = text
        self._config = config
        self._counts = counts
        self._grounding = grounding
        self._tasks: dict[int, Task] = {}
        self._premises: dict[int, str] = {}
        self._pending: dict[int, list[int]] = {}
        self._states: dict[int, list[str]] = {}
        self._queries: dict[int, Query] = {}
        self.written: dict[int, Generation] = {}
        self.greedy: dict[int, Generation] = {}
        self.unchecked: dict[int, Answer | None] = {}

    def begin_episode(self, row: int, task: Task, premise: str = "") -> None:
        """Begin an episode of `task` in `row`, in place of the row's last one. Other rows are not touched."""
        self._session.clear(row)
        self._tasks[row] = task
        self._premises[row] = premise
        self._states[row] = [task.initial_state]
        self._pending[row] = self._text.opening(task, premise)

    def predict(
        self,
        queries: Mapping[int, Query],
        is_coherent: RowCheck | None = None,
        is_undetermined: RowCheck | None = None,
    ) -> dict[int, Answer | None]:
        """The answer of each queried row; None where no try passed the checks. The trunks stay as they were.

        Args:
            is_coherent: (row, answer) -> False refuses the answer; it is sampled again.
            is_undetermined: (row, answer) -> whether the history does not determine the answer. Then state
                and outcome are sampled behind its greedy reasoning, at the config's temperature. Any other
                greedy answer below `min_confidence` is none, and so is any other answer that one of
                `agreeing_samples` differs from. None: all answers are greedy, however unsure.

        Raises:
            DataError: a prompt does not fit behind its row. Nothing was generated; the other rows can be
                queried without it.
        """
        self._queries = dict(queries)
        checks = self._checks(is_coherent)
        prompts = {row: self._prompt(row, query) for row, query in queries.items()}
        trunk_lengths = {row: self._session.lengths[row] + len(self._pending[row]) for row in queries}
        prompt_ends = {row: trunk_lengths[row] + len(prompt) for row, prompt in prompts.items()}
        self.written = self._generate(
            {row: self._pending[row] + prompt for row, prompt in prompts.items()}, 0.0
        )
        self.greedy = dict(self.written)
        greedy = {
            row: checks.read(generation, self._context(row)) for row, generation in self.written.items()
        }
        unsure_rows: set[int] = set()
        if is_undetermined is not None and self._config.min_confidence > 0:
            unsure_rows = {
                row
                for row, read in greedy.items()
                if read.answer
                and confidence_of(self.written[row]) < self._config.min_confidence
                and not is_undetermined(row, read.answer)
            }
            self._counts.refusals[Refusal.UNSURE] += len(unsure_rows)
        sampled: dict[int, Answer | None] = {}
        if is_undetermined is not None and self._config.temperature > 0:
            undetermined_rows = [
                row
                for row, read in greedy.items()
                if read.answer and read.valid_prefix is None and is_undetermined(row, read.answer)
            ]
            sampled = self._sample_outcomes({row: prompt_ends[row] for row in undetermined_rows}, checks)
        answers = {
            row: None if row in unsure_rows else sampled.get(row) or checks.accept(row, read)
            for row, read in greedy.items()
        }
        refused_rows = [row for row, answer in answers.items() if answer is None and row not in unsure_rows]
        answers |= self._answer_again(refused_rows, prompts, prompt_ends, greedy, checks)
        answers |= checks.fall_back([row for row in refused_rows if answers[row] is None], greedy)
        if is_undetermined is not None and self._config.agreeing_samples:
            determined = {row: one for row, one in answers.items() if one and not is_undetermined(row, one)}
            self._session.rewind({row: prompt_ends[row] - 1 for row in determined})
            disagreeing = disagreeing_rows(
                determined, self._config.agreeing_samples, lambda rows, _: self._sample_again(rows, prompts)
            )
            self._counts.refusals[Refusal.DISAGREEING] += len(disagreeing)
            answers |= dict.fromkeys(disagreeing)
        self.unchecked = {
            row: read.answer if read.valid_prefix is None and read.answer else answers[row]
            for row, read in greedy.items()
        }
        self._session.rewind(trunk_lengths)
        self._pending |= {row: [] for row in queries}
        self._counts.unanswered_steps += sum(answer is None for answer in answers.values())
        return answers

    def advance(self, steps: Mapping[int, tuple[str, str]]) -> None:
        """Add (action, next state) to the history of each named row."""
        if not self._config.history:
            return
        for row, (action, state) in steps.items():
            growth = self._text.growth(
                self._tasks[row],
                self._states[row],
                action,
                Answer("", state, 0.0, False),
                self._premises[row],
            )
            self._pending[row] = self._pending[row] + growth
            self._states[row].append(state)

    def finish(self, rows: Sequence[int]) -> None:
        """Drop rows whose episodes are over: they take no more memory and time."""
        self._session.drop(rows)

    def _checks(self, is_coherent: RowCheck | None) -> AnswerChecks:
        return AnswerChecks(
            self._text,
            self._counts,
            grounding=self._grounding,
            is_coherent=is_coherent,
        )

    def _context(self, row: int) -> StepContext:
        query = self._queries[row]
        return StepContext(self._tasks[row], [*self._states[row], query.state], query.action)

    def _prompt(self, row: int, query: Query) -> list[int]:
        """Tokens of the turn behind the row's trunk, up to where the answer begins."""
        states = [*self._states[row][:-1], query.state]
        return self._text.question(
            self._tasks[row], states, query.action, query.demonstrations, self._premises[row]
        )

    def _sample_outcomes(
        self, prompt_ends: Mapping[int, int], checks: AnswerChecks
    ) -> dict[int, Answer | None]:
        """Answers with the greedy reasoning, and state and outcome sampled behind it.

        Args: prompt_ends: row -> length of the row up to where its answer begins.
        """
        temperature = self._config.temperature
        prefixes = {row: self._until_state(self.written[row]) for row in prompt_ends}
        last_tokens = {row: prefix.tokens[-1:] for row, prefix in prefixes.items()}
        starts = {row: end + len(prefixes[row].tokens) - 1 for row, end in prompt_ends.items()}
        self._session.rewind(starts)
        self.written |= self._generate(last_tokens, temperature, prefixes)
        answers = {
            row: checks.accept(row, ReadAnswer(checks.parse(self.written[row]))) for row in prompt_ends
        }
        refused_rows = [row for row, answer in answers.items() if answer is None]
        self._session.rewind({row: starts[row] for row in refused_rows})
        return answers | self._try_again(
            {row: last_tokens[row] for row in refused_rows}, temperature, checks, prefixes
        )

    def _sample_again(self, rows: Sequence[int], prompts: Mapping[int, list[int]]) -> list[Answer | None]:
        """A further answer of each row, in spare rows. The rows end one token before their answers."""
        answers: list[Answer | None] = []
        spare_rows = range(self._rows, self._session.rows)
        for start in range(0, len(rows), len(spare_rows)):
            row_of = dict(zip(spare_rows, rows[start:], strict=False))
            self._session.copy(row_of)
            last_tokens = {spare: prompts[row][-1:] for spare, row in row_of.items()}
            written = self._generate(last_tokens, RETRY_TEMPERATURE)
            answers += [self._text.parse(written[spare].tokens) for spare in row_of]
            self._session.rewind(dict.fromkeys(row_of, 0))
        return answers

    def _answer_again(
        self,
        rows: Sequence[int],
        prompts: Mapping[int, list[int]],
        prompt_ends: Mapping[int, int],
        greedy: Mapping[int, ReadAnswer],
        checks: AnswerChecks,
    ) -> dict[int, Answer | None]:
        """Answers sampled at `RETRY_TEMPERATURE`: behind the valid prefix of an ungrounded greedy answer,
        from the beginning of any other.
        """
        prefixes = {row: greedy[row].valid_prefix or Generation([], [], False) for row in rows}
        self._session.rewind(
            {row: prompt_ends[row] + len(prefix.tokens) - 1 for row, prefix in prefixes.items()}
        )
        last_tokens = {row: (prompts[row] + prefix.tokens)[-1:] for row, prefix in prefixes.items()}
        return self._try_again(last_tokens, RETRY_TEMPERATURE, checks, prefixes)

    def _try_again(
        self,
        last_tokens: Mapping[int, list[int]],
        temperature: float,
        checks: AnswerChecks,
        prefixes: Mapping[int, Generation],
    ) -> dict[int, Answer | None]:
        """The first accepted of up to `resamples` further answers of each row.

        With a grounding check, `PARALLEL_TRIES` are made at a time, and the next ones go on behind the
        longest valid prefix so far.

        Args:
            last_tokens: row -> the token to go on behind; all before it is in the session.
            prefixes: row -> what its answer begins with, up to that token.
        """
        answers: dict[int, Answer | None] = dict.fromkeys(last_tokens)
        last_tokens = dict(last_tokens)
        prefixes = dict(prefixes)
        tries = [row for _ in range(self._config.resamples) for row in last_tokens]
        while tries:
            batch_size = PARALLEL_TRIES * len(set(tries)) if self._grounding else len(tries)
            spare_rows = range(self._rows, self._session.rows)
            row_of = dict(zip(spare_rows, tries[:batch_size], strict=False))
            self._session.copy(row_of)
            written = self._generate(
                {spare: last_tokens[row] for spare, row in row_of.items()},
                temperature,
                {spare: prefixes[row] for spare, row in row_of.items()},
            )
            for spare, generation in written.items():
                row = row_of[spare]
                read = checks.read(generation, self._context(row))
                if answers[row] is None:
                    answers[row] = checks.accept(row, read)
                prefix = read.valid_prefix
                if prefix and len(prefix.tokens) > len(prefixes[row].tokens):
                    last_tokens[row] = last_tokens[row] + prefix.tokens[len(prefixes[row].tokens) :]
                    prefixes[row] = prefix
            self._session.rewind(dict.fromkeys(row_of, 0))
            tries = [row for row in tries[len(row_of) :] if answers[row] is None]
        return answers

    def _until_state(self, generation: Generation) -> Generation:
        """The generation up to where the text of its state begins."""
        end = self._text.state_start(generation.tokens)
        return Generation(generation.tokens[:end], generation.logprobs[:end])

    def _generate(
        self,
        prompts: Mapping[int, list[int]],
        temperature: float,
        prefixes: Mapping[int, Generation] | None = None,
    ) -> dict[int, Generation]:
        """Answers behind the prompts.

        Args: prefixes: row -> what its answer begins with, where the prompt already holds it.
        """
        limit = self._config.max_new_tokens
        written = self._session.generate(
            prompts, stop=self._text.stop, max_new_tokens=limit, temperature=temperature
        )
        self._counts.tokens += sum(len(generation.tokens) for generation in written.values())
        for row, prefix in (prefixes or {}).items():
            tokens = prefix.tokens + written[row].tokens
            logprobs = prefix.logprobs + written[row].logprobs
            has_stopped = written[row].stopped and len(tokens) <= limit
            written[row] = Generation(tokens[:limit], logprobs[:limit], has_stopped)
        return written


def confidence_of(generation: Generation) -> float:
    """The probability that the model gives to all tokens of a generation."""
    return math.exp(sum(generation.logprobs))
