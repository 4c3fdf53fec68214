"""The interface of an experience model's text: prompts and answers as token ids."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from components.records import Task, Transition


@dataclass(frozen=True)
class Answer:
    """The experience model's prediction of one step."""

    reasoning: str
    state: str
    reward: float
    done: bool

    def has_outcome_of(self, other: Answer) -> bool:
        """Whether both have the same next state, reward and end, whatever their reasoning."""
        return (self.state, self.reward, self.done) == (other.state, other.reward, other.done)


def recorded_answer(transition: Transition) -> Answer:
    """The answer that a model should have given to a recorded transition."""
    return Answer(transition.reasoning, transition.next_state, transition.reward, transition.done)


class WorldFormat(Protocol):
    """Prompts and answers of one experience model.

    An episode is a trunk that only grows: `opening`, then one `growth` a step. The prompt of a step is the
    trunk and behind it `question`, which is not kept where it differs from the step's `growth`.

    Attributes:
        form: prompt and answer in words, for people.
        stop: ids of the tokens at which an answer ends.
        text_stop: ids of the tokens at which a premise, an instruction or a reason ends.
    """

    form: str
    stop: set[int]
    text_stop: set[int]

    def opening(self, task: Task, premise: str = "") -> list[int]:
        """The beginning of the trunk."""

    def question(
        self,
        task: Task,
        states: Sequence[str],
        action: str,
        demonstrations: Sequence[Transition] = (),
        premise: str = "",
    ) -> list[int]:
        """The tokens behind the trunk, up to where the answer begins.

        Args:
            states: of the episode in order of time, the current one last; without history only that one.
            demonstrations: the most similar first.
        """

    def growth(
        self, task: Task, states: Sequence[str], action: str, answer: Answer, premise: str = ""
    ) -> list[int]:
        """The tokens that a step adds to the trunk.

        Args: states: those before the step, the current one last.
        """

    def answer(self, answer: Answer) -> list[int]:
        """The tokens of an answer, as a model should write them."""

    def parse(self, tokens: Sequence[int]) -> Answer | None:
        """The answer that generated tokens spell; None if they do not follow the form exactly."""

    def reasoning(self, tokens: Sequence[int]) -> str | None:
        """The reasoning that an answer begins with, as far as `tokens` go; None if it has none."""

    def reasoning_start(self, tokens: Sequence[int]) -> int:
        """How many tokens of an answer stand before the text of its reasoning."""

    def state_start(self, tokens: Sequence[int]) -> int:
        """How many tokens of a parsable answer stand before the text of its state."""

    def outcome_start(self, tokens: Sequence[int]) -> int:
        """How many tokens of an answer stand before its outcome, that is reward and end of the episode."""

    def premise_prompt(self, task: Task) -> tuple[list[int], list[int]]:
        """The trunk, and the tokens behind it, that request a premise."""

    def variation_prompt(self, task: Task) -> tuple[list[int], list[int]]:
        """The trunk, and the tokens behind it, that request another task of the same room."""

    def reason_prompt(self, task: Task, step: Transition) -> list[int]:
        """The tokens that request a reason for a recorded step, the state after it included.

        Raises:
            ConfigError: the format is of models that write nothing but answers.
        """

    def text_answer(self, text: str) -> list[int]:
        """The tokens of a premise, an instruction or a reason, as a model should write them."""

    def parse_text(self, tokens: Sequence[int]) -> str:
        """The premise, instruction or reason that tokens spell; empty if they do not follow the form."""
