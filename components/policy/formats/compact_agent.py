"""Format `compact` of the policy: one growing sequence an episode, with markers between its parts.

    <task> instruction <state> s0 <turn> instruction <state> s0 <think> thought <action> a0 <end> <state> s1
    <turn> ...

Each turn repeats the task and the initial state, since a small model copies badly over a long distance.

Differs from the paper: its agent prompt (verl-agent's template) also lists the admissible actions. Ours does
not, because a dream has no such list.
"""

from __future__ import annotations

from collections.abc import Sequence

from components.language.vocabulary.compact_vocabulary import CompactVocabulary
from components.language.vocabulary.markers import ACTION, END, STATE, TASK, THINK, TURN, Marker
from components.records import Task


class CompactAgent:
    """Prompts and replies of one policy (`AgentFormat`)."""

    form = (
        "<task> instruction <state> initial state <turn> instruction <state> initial state <think> thought "
        "<action> action <end> "
        "<state> state <turn> ... ; the model writes: thought <action> action <end>"
    )

    def __init__(self, vocabulary: CompactVocabulary) -> None:
        self.stop = {vocabulary.marker_id(END)}
        self._vocabulary = vocabulary

    def opening(self, task: Task) -> list[int]:
        """See `AgentFormat`."""
        pieces = [TASK, task.instruction, STATE, task.initial_state]
        return self._vocabulary.start + self._vocabulary.encode(pieces)

    def ask(self, task: Task) -> list[int]:
        """See `AgentFormat`."""
        return self._vocabulary.encode([TURN, task.instruction, STATE, task.initial_state, THINK])

    def reply(self, thought: str, action: str) -> list[int]:
        """See `AgentFormat`."""
        return self._vocabulary.encode([thought, ACTION, action, END])

    def close(self, reply: Sequence[int]) -> list[int]:
        """See `AgentFormat`: nothing."""
        return []

    def observation(self, state: str) -> list[int]:
        """See `AgentFormat`."""
        return self._vocabulary.encode([STATE, state])

    def observation_parts(self, state: str) -> tuple[list[int], list[int]]:
        """See `AgentFormat`."""
        return self._vocabulary.encode([STATE]), self._vocabulary.encode([state])

    def question(self, text: str) -> list[int] | None:
        """See `AgentFormat`: None, since a small vocabulary has no words for questions."""
        return None

    def answer(self, text: str) -> list[int] | None:
        """See `AgentFormat`: None, as for `question`."""
        return None

    def parse(self, tokens: Sequence[int]) -> tuple[str, str]:
        """See `AgentFormat`."""
        return parse_reply(self._vocabulary.pieces(tokens))


def parse_reply(pieces: Sequence[str]) -> tuple[str, str]:
    """(thought, action) of generated pieces; see `AgentFormat.parse`."""
    texts = [piece for piece in pieces if piece != END or not isinstance(piece, Marker)]
    form = [isinstance(piece, Marker) and str(piece) for piece in texts]
    if form == [ACTION, False]:
        return "", texts[1]
    if form == [False, ACTION, False]:
        return texts[0], texts[2]
    return " ".join(texts), ""
