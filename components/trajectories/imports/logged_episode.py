"""An episode as a log tells it, before it becomes a task and transitions."""

from __future__ import annotations

import re
from dataclasses import dataclass

_LAST_WORD = re.compile(r"[!#-&(-~]*$")
"""Letters, digits and signs of ASCII without quotes, at the end."""


@dataclass(frozen=True)
class LoggedStep:
    """What the agent wrote, and what came back; `observation` is None where the log ends with the action.
    `reasoning` is the world's, where tables of transitions have it.
    """

    thought: str
    action: str
    observation: str | None
    reasoning: str = ""


@dataclass(frozen=True)
class LoggedEpisode:
    """One episode.

    Attributes:
        id: of the episode in the log; empty if the log has none.
        place: where it stands, for messages, such as `agent.jsonl:12`.
        system: text of the system message; empty if there is none.
        instruction: what the agent was to do.
        first_observation: what it saw before its first action.
        steps: in order; at least one.
        success: the outcome; None if the log does not tell it.
        is_over: the log says that the world ended the episode, so it is no beginning of a longer one.
        world: name of the environment; empty if the log names none.
        behaviour: who acted; empty if the log does not say it.
        is_cut: of an unknown outcome: its last step was left out before, by an earlier import.
    """

    id: str
    place: str
    system: str
    instruction: str
    first_observation: str
    steps: tuple[LoggedStep, ...]
    success: bool | None
    is_over: bool = False
    world: str = ""
    behaviour: str = ""
    is_cut: bool = False


@dataclass(frozen=True)
class Skipped:
    """A part of a log that was left out: the kind of reason, its place, and what was found there."""

    reason: str
    place: str
    found: str = ""


class Unusable(Exception):
    """Raised by a reader where a record cannot be used: the kind of reason, and what was found."""

    def __init__(self, reason: str, found: object = "") -> None:
        super().__init__(reason)
        self.reason = reason
        self.found = shortened(found)


def shortened(value: object, limit: int = 80) -> str:
    """`value` as a short text for messages.

    The last word before a cut is left out: a part of a secret could not be recognised, so not be masked.
    """
    text = " ".join(str(value).split())
    if len(text) <= limit:
        return text
    return f"{_LAST_WORD.sub('', text[: limit - 20]).rstrip()} ... ({len(text):,} characters)"
