"""The interface of a policy's text: observations and replies as token ids."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from components.records import Task


class AgentFormat(Protocol):
    """Prompts and replies of one policy.

    An episode is one sequence that only grows: `opening`, `ask`, a reply, `observation`, `ask`, a reply, and
    so on. What the policy wrote stays as it was sampled.

    Attributes:
        form: prompt and reply in words, for people.
        stop: ids of the tokens at which a reply ends.
    """

    form: str
    stop: set[int]

    def opening(self, task: Task) -> list[int]:
        """The tokens that begin an episode: instruction and initial state."""

    def ask(self, task: Task) -> list[int]:
        """The tokens that ask for the next reply."""

    def reply(self, thought: str, action: str) -> list[int]:
        """The tokens that the agent writes in one step; an empty thought is left out."""

    def close(self, reply: Sequence[int]) -> list[int]:
        """The tokens that a generated reply lacks before the next observation: it may end at a limit."""

    def observation(self, state: str) -> list[int]:
        """The tokens behind a reply that show the state after its action."""

    def observation_parts(self, state: str) -> tuple[list[int], list[int]]:
        """`observation` in two parts: what stands before the text of the state, and the state."""

    def question(self, text: str) -> list[int] | None:
        """The tokens of a conversation that asks `text` in words, up to the reply, which `parse` reads as a
        thought; None if the format has no such conversations.
        """

    def answer(self, text: str) -> list[int] | None:
        """The tokens of a reply in words to a `question`; None if the format has no such conversations."""

    def parse(self, tokens: Sequence[int]) -> tuple[str, str]:
        """(thought, action) of generated tokens.

        If they do not follow the form, the action is "", which every environment refuses, and the thought is
        the whole text.
        """
