"""Format `compact` of the experience model: terse text between markers, for a model of a million parameters.

The trunk (task, states, actions) comes first and only grows. The branch of a step (demonstrations, then the
turn with its answer) comes last and is rewound after the step. So the cache of the trunk lasts for a whole
episode. The turn repeats the task, the initial state (what the world consists of), the earlier states
that mention what the action names (`episodic_recall.py`), and the current state: a small model concludes well
over a short distance and copies badly over a long one.

    trunk    <task> instruction <state> s0 [<think> premise] <action> a0 <state> s1 <action> a1 <state> s2 ...
    branch   <demo> s a <state> s' ... <turn> instruction <state> s0 [<think> premise] <recall> s_i ...
    <state> s_t <action> a_t
             <think> R <state> s_t+1 <continue>

The answer ends with the outcome: <continue>, <success> (reward 1, done) or <failure> (reward 0, done).

Differs from the paper's prompt (App. C): it is terse, because models of a million parameters read it.
"""

from __future__ import annotations

from collections.abc import Sequence

from components.errors import ConfigError
from components.experience.episodic_recall import recall
from components.experience.formats.world_format import Answer
from components.language.vocabulary.compact_vocabulary import CompactVocabulary
from components.language.vocabulary.markers import (
    ACTION,
    CONTINUE,
    DEMO,
    END,
    FAILURE,
    RECALL,
    STATE,
    SUCCESS,
    TASK,
    THINK,
    TURN,
    Marker,
)
from components.records import Task, Transition

OUTCOMES = (CONTINUE, SUCCESS, FAILURE)
VARIATION = (TURN, TASK)
"""Requests, behind an opening, another task of the same room."""
PREMISE = (TURN, THINK)
"""Requests, behind an opening, a premise."""


class CompactWorld:
    """Prompts and answers of one experience model (`WorldFormat`).

    Args:
        reasoning: answers begin with a reasoning.
        recalled: most earlier states that a question repeats.
    """

    form = (
        "<task> instruction <state> initial state [<think> premise] <action> action <state> state ... "
        "<demo> state <action> action <state> next state ... <turn> instruction <state> initial state "
        "[<think> premise] <recall> earlier state ... <state> state <action> action ; the model writes: "
        "<think> reasoning <state> next state, then <continue>, <success> or <failure>"
    )

    def __init__(self, vocabulary: CompactVocabulary, *, reasoning: bool = True, recalled: int = 0) -> None:
        self.stop = {vocabulary.marker_id(outcome) for outcome in OUTCOMES}
        self.text_stop = {vocabulary.marker_id(END)}
        self._vocabulary = vocabulary
        self._reasoning = reasoning
        self._recalled = recalled

    def opening(self, task: Task, premise: str = "") -> list[int]:
        """See `WorldFormat`."""
        return self._vocabulary.start + self._vocabulary.encode(opening(task, premise))

    def question(
        self,
        task: Task,
        states: Sequence[str],
        action: str,
        demonstrations: Sequence[Transition] = (),
        premise: str = "",
    ) -> list[int]:
        """See `WorldFormat`."""
        recalled = recall(states, action, self._recalled)
        return self._vocabulary.encode(turn(task, states[-1], action, demonstrations, recalled, premise))

    def growth(
        self, task: Task, states: Sequence[str], action: str, answer: Answer, premise: str = ""
    ) -> list[int]:
        """See `WorldFormat`."""
        return self._vocabulary.encode(growth(action, answer.state))

    def answer(self, answer: Answer) -> list[int]:
        """See `WorldFormat`."""
        return self._vocabulary.encode(answer_pieces(answer, reasoning=self._reasoning))

    def parse(self, tokens: Sequence[int]) -> Answer | None:
        """See `WorldFormat`."""
        return parse_answer(self._vocabulary.pieces(tokens), reasoning=self._reasoning)

    def reasoning(self, tokens: Sequence[int]) -> str | None:
        """See `WorldFormat`."""
        pieces = self._vocabulary.pieces(tokens)
        return pieces[1] if len(pieces) >= 2 and pieces[0] == THINK else None

    def reasoning_start(self, tokens: Sequence[int]) -> int:
        """See `WorldFormat`: the marker THINK."""
        return 1

    def state_start(self, tokens: Sequence[int]) -> int:
        """See `WorldFormat`."""
        return list(tokens).index(self._vocabulary.marker_id(STATE)) + 1

    def outcome_start(self, tokens: Sequence[int]) -> int:
        """See `WorldFormat`: the last token is its marker."""
        return len(tokens) - 1

    def premise_prompt(self, task: Task) -> tuple[list[int], list[int]]:
        """See `WorldFormat`."""
        return self.opening(task), self._vocabulary.encode(PREMISE)

    def variation_prompt(self, task: Task) -> tuple[list[int], list[int]]:
        """See `WorldFormat`."""
        return self.opening(task), self._vocabulary.encode(VARIATION)

    def reason_prompt(self, task: Task, step: Transition) -> list[int]:
        """See `WorldFormat`: a small backbone has no reasons of its own."""
        raise ConfigError(
            "experience_model.teacher is self, and the backbone is no chat model.",
            "Expected a model that can write a sentence: a directory or hub name of a chat model.",
            "Set backbone.path=models/smollm2 (make model), or experience_model.reasoning=false.",
        )

    def text_answer(self, text: str) -> list[int]:
        """See `WorldFormat`."""
        return self._vocabulary.encode([text, END])

    def parse_text(self, tokens: Sequence[int]) -> str:
        """See `WorldFormat`."""
        pieces = self._vocabulary.pieces(tokens)
        return pieces[0] if len(pieces) == 2 and pieces[1] == END else ""


def opening(task: Task, premise: str = "") -> list[str]:
    """The beginning of the trunk: task, initial state and premise."""
    return [TASK, task.instruction, STATE, task.initial_state, *_premise_pieces(premise)]


def _premise_pieces(premise: str) -> list[str]:
    return [THINK, premise] if premise else []


def growth(action: str, state: str) -> list[str]:
    """The pieces that a step adds to the trunk."""
    return [ACTION, action, STATE, state]


def turn(
    task: Task,
    state: str,
    action: str,
    demonstrations: Sequence[Transition],
    recalled: Sequence[str] = (),
    premise: str = "",
) -> list[str]:
    """The branch up to where the answer begins.

    The least similar demonstration comes first; `demonstrations` begin with the most similar one.

    Args: recalled: earlier states, the oldest first.
    """
    pieces: list[str] = []
    for demo in reversed(demonstrations):
        pieces += [DEMO, demo.state, ACTION, demo.action, STATE, demo.next_state]
    recalled_pieces = [piece for earlier_state in recalled for piece in (RECALL, earlier_state)]
    world = [STATE, task.initial_state, *_premise_pieces(premise)]
    return [*pieces, TURN, task.instruction, *world, *recalled_pieces, STATE, state, ACTION, action]


def answer_pieces(answer: Answer, *, reasoning: bool) -> list[str]:
    """The target text of a step."""
    outcome = CONTINUE if not answer.done else SUCCESS if answer.reward > 0.5 else FAILURE
    reasoning_pieces = [THINK, answer.reasoning] if reasoning else []
    return [*reasoning_pieces, STATE, answer.state, outcome]


def parse_answer(pieces: Sequence[str], *, reasoning: bool) -> Answer | None:
    """The answer that generated markers and texts spell; None if they do not follow the form exactly.

    A text that spells a marker is no marker: only `Marker` pieces count.
    """
    thought = ""
    if reasoning:
        if len(pieces) < 2 or not _is_marker(pieces[0], THINK) or isinstance(pieces[1], Marker):
            return None
        thought = pieces[1]
        pieces = pieces[2:]
    if len(pieces) != 3 or not _is_marker(pieces[0], STATE) or isinstance(pieces[1], Marker):
        return None
    state, outcome = pieces[1:]
    if not isinstance(outcome, Marker) or outcome not in OUTCOMES:
        return None
    return Answer(thought, state, 1.0 if outcome == SUCCESS else 0.0, outcome != CONTINUE)


def _is_marker(piece: str, marker: str) -> bool:
    return isinstance(piece, Marker) and piece == marker
