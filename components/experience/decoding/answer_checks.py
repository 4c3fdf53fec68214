"""Checks of a generated answer: how much of it stands, and which check refused it.

An answer passes these checks in order (`Refusal` names them):

1. grounded: its reasoning quotes only what the task and the states say. The adapter tells how many of its
   characters quote rightly. Without such an adapter, every reasoning counts as grounded.
2. parsable: it has the form that `prompts.parse_answer` reads.
3. coherent: the caller accepts it. The dream refuses a state that contradicts the episode so far.

An ungrounded answer keeps its longest valid prefix: the rest is generated again behind it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from components.experience.prompts import Answer, parse_answer
from components.language.engines.engine_protocol import Generation
from components.language.markers import THINK
from components.language.tokenizer import Vocabulary
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


@dataclass
class DecodingCounts:
    """What a model has generated so far, and what became of it.

    Attributes:
        tokens: generated tokens.
        refusals: refused answers by the check that refused them.
        unanswered_steps: steps whose tries were all refused.
    """

    tokens: int = 0
    refusals: Counter[Refusal] = field(default_factory=Counter)
    unanswered_steps: int = 0


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
        vocabulary: Vocabulary,
        counts: DecodingCounts,
        *,
        reasoning: bool,
        grounding: GroundingCheck | None = None,
        is_coherent: RowCheck | None = None,
    ) -> None:
        """Args:
        reasoning: answers begin with a reasoning (`experience_model.reasoning`).
        grounding: None: every reasoning counts as grounded.
        is_coherent: None: every answer counts as coherent.
        """
        self._vocabulary = vocabulary
        self._counts = counts
        self._reasoning = reasoning
        self._grounding = grounding
        self._is_coherent = is_coherent

    def parse(self, generation: Generation) -> Answer | None:
        """The answer that the tokens spell; None if they do not follow the form."""
        return parse_answer(self._vocabulary.pieces(generation.tokens), reasoning=self._reasoning)

    def read(self, generation: Generation, context: StepContext) -> ReadAnswer:
        """The parsed answer with its longest valid prefix."""
        return ReadAnswer(self.parse(generation), self.longest_valid_prefix(generation, context))

    def longest_valid_prefix(self, generation: Generation, context: StepContext) -> Generation | None:
        """The beginning of an answer whose reasoning quotes rightly, in whole tokens.

        Returns:
            None if nothing quotes wrongly, as far as the adapter can tell. Otherwise at least the first
            token, which is the marker of the reasoning.
        """
        if self._grounding is None:
            return None
        pieces = self._vocabulary.pieces(generation.tokens)
        if len(pieces) < 2 or pieces[0] != THINK:
            return None
        reasoning = pieces[1]
        grounded_characters = self._grounding(context.task, context.states, context.action, reasoning)
        if grounded_characters >= len(reasoning):
            return None
        end = next(
            (
                end
                for end in range(1, len(generation.tokens))
                if self._character_count(generation.tokens[1 : end + 1]) > grounded_characters
            ),
            1,
        )
        return Generation(generation.tokens[:end], generation.logprobs[:end], False)

    def accept(self, row: int, read: ReadAnswer) -> Answer | None:
        """The answer if it passes all checks; None otherwise, and the refusal is counted."""
        refusal = self.refusal(row, read)
        if refusal is None:
            return read.answer
        self._counts.refusals[refusal] += 1
        return None

    def refusal(self, row: int, read: ReadAnswer) -> Refusal | None:
        """The first check that the answer fails; None if it passes all."""
        if read.valid_prefix is not None:
            return Refusal.UNGROUNDED
        if read.answer is None:
            return Refusal.UNPARSABLE
        if self._is_coherent is not None and not self._is_coherent(row, read.answer):
            return Refusal.INCOHERENT
        return None

    def _character_count(self, tokens: list[int]) -> int:
        """Characters of the first text that the tokens spell."""
        return len("".join(self._vocabulary.pieces(tokens)[:1]))
