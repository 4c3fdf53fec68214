"""Checks of a generated answer: how much of it stands, and which check refused it.

An answer passes these checks in order (`Refusal` names them):

1. grounded: its reasoning quotes only what the task and the states say. The adapter tells how many of its
   characters quote rightly. Without such an adapter, every reasoning counts as grounded.
2. parsable: it has the form that `WorldFormat.parse` reads.
3. coherent: the caller accepts it. The dream refuses a state that contradicts the episode so far.

Before them, in a dream, `PredictionBatch.predict` refuses an answer that the model is too unsure of, or that
further samples do not agree with.

An ungrounded answer keeps its longest valid prefix: the rest is generated again behind it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from components.experience.formats.world_format import Answer, WorldFormat
from components.language.engines.engine_protocol import Generation
from components.records import Task

GroundingCheck = Callable[[Task, Sequence[str], str, str], int]
"""(task, states so far, action, reasoning) -> how many leading characters of the reasoning quote rightly:
`Grounding.grounded` of the adapter.
"""
RowCheck = Callable[[int, Answer], bool]
"""(row, answer) -> whether a condition holds."""


class Refusal(StrEnum):
    """The first check that an answer fails."""

    UNGROUNDED = "ungrounded"
    UNPARSABLE = "unparsable"
    INCOHERENT = "incoherent"
    UNSURE = "unsure"
    DISAGREEING = "disagreeing"


@dataclass
class DecodingCounts:
    """What a model has generated so far, and what became of it.

    Attributes:
        tokens: generated tokens.
        refusals: refused answers by the check that refused them.
        unanswered_steps: steps without an accepted answer.
    """

    tokens: int = 0
    refusals: Counter[Refusal] = field(default_factory=Counter)
    unanswered_steps: int = 0

    def add(self, other: DecodingCounts) -> None:
        """Add another model's counts to these."""
        self.tokens += other.tokens
        self.refusals.update(other.refusals)
        self.unanswered_steps += other.unanswered_steps


@dataclass(frozen=True)
class StepContext:
    """What the reasoning of a step may quote. `states` are in order of time, the current one last."""

    task: Task
    states: Sequence[str]
    action: str


@dataclass(frozen=True)
class ReadAnswer:
    """A generated answer as its text reads.

    Attributes:
        answer: None if it does not parse.
        valid_prefix: the beginning that quotes rightly; None if the whole reasoning is grounded.
    """

    answer: Answer | None
    valid_prefix: Generation | None = None


class AnswerChecks:
    """The checks of one batch of questions. Refusals are added to `counts`."""

    def __init__(
        self,
        text: WorldFormat,
        counts: DecodingCounts,
        *,
        grounding: GroundingCheck | None = None,
        is_coherent: RowCheck | None = None,
    ) -> None:
        """Args:
        grounding: None: every reasoning counts as grounded.
        is_coherent: None: every answer counts as coherent.
        """
        self._text = text
        self._counts = counts
        self._grounding = grounding
        self._is_coherent = is_coherent

    def parse(self, generation: Generation) -> Answer | None:
        """The answer that the tokens spell; None if they do not follow the form."""
        return self._text.parse(generation.tokens)

    def read(self, generation: Generation, context: StepContext) -> ReadAnswer:
        """The parsed answer with its longest valid prefix."""
        return ReadAnswer(self.parse(generation), self.longest_valid_prefix(generation, context))

    def longest_valid_prefix(self, generation: Generation, context: StepContext) -> Generation | None:
        """The beginning of an answer whose reasoning quotes rightly, in whole tokens.

        Returns:
            None if nothing quotes wrongly, as far as the adapter can tell. Otherwise at least the tokens
            before the text of the reasoning.
        """
        if self._grounding is None:
            return None
        reasoning = self._text.reasoning(generation.tokens)
        if reasoning is None:
            return None
        grounded_characters = self._grounding(context.task, context.states, context.action, reasoning)
        if grounded_characters >= len(reasoning):
            return None
        start = self._text.reasoning_start(generation.tokens)
        end = next(
            (
                end
                for end in range(start, len(generation.tokens))
                if len(self._text.reasoning(generation.tokens[: end + 1]) or "") > grounded_characters
            ),
            start,
        )
        return Generation(generation.tokens[:end], generation.logprobs[:end], False)

    def accept(self, row: int, read: ReadAnswer) -> Answer | None:
        """The answer if it passes all checks; None otherwise, and the refusal is counted."""
        refusal = self.refusal(row, read)
        if refusal is None:
            return read.answer
        self._counts.refusals[refusal] += 1
        return None

    def fall_back(self, rows: Sequence[int], greedy: Mapping[int, ReadAnswer]) -> dict[int, Answer | None]:
        """The ungrounded greedy answers of rows without others, if they grant no reward and are coherent."""
        return {
            row: self.accept(row, ReadAnswer(answer))
            for row in rows
            if greedy[row].valid_prefix and (answer := greedy[row].answer) and answer.reward <= 0
        }

    def refusal(self, row: int, read: ReadAnswer) -> Refusal | None:
        """The first check that the answer fails; None if it passes all."""
        if read.valid_prefix is not None:
            return Refusal.UNGROUNDED
        if read.answer is None:
            return Refusal.UNPARSABLE
        if self._is_coherent is not None and not self._is_coherent(row, read.answer):
            return Refusal.INCOHERENT
        return None
