"""The one renderer of transitions for the experience model, used in training and in inference.

The trunk (task, states, actions) comes first and only grows. The branch of a step (demonstrations, then the
turn with its answer) comes last and is rewound after the step. So the cache of the trunk lasts for a whole
episode. The turn repeats the task, the initial state (what the world consists of), the earlier states
that mention what the action names (`episodic_recall.py`), and the current state: a small model concludes well
over a short distance and copies badly over a long one.

    trunk    <task> instruction <state> s0 [<think> premise] <action> a0 <state> s1 <action> a1 <state> s2 ...
    branch   <demo> s a <state> s' ... <turn> instruction <state> s0 [<think> premise] <recall> s_i ...
    <state> s_t <action> a_t
             <think> R <state> s_t+1 <continue>

With a chat template, everything before the answer is one user message, and the answer is the reply: the
template's opening stands before <task>; the end of the message and the start of the reply stand before
<think>.

The answer ends with the outcome: <continue>, <success> (reward 1, done) or <failure> (reward 0, done).

Differs from the paper's prompt (App. C): it is terse, because models of a million parameters read it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from components.experience.episodic_recall import recall
from components.language.markers import (
    ACTION,
    ANSWER,
    CONTINUE,
    DEMO,
    END,
    FAILURE,
    OPENING,
    RECALL,
    STATE,
    SUCCESS,
    TASK,
    THINK,
    TURN,
    Marker,
)
from components.language.tokenizer import Vocabulary
from components.language.training.examples import Example, Segment
from components.records import Task, Trajectory, Transition

OUTCOMES = (CONTINUE, SUCCESS, FAILURE)
VARIATION = (TURN, TASK, ANSWER)
"""Requests, behind an opening, another task of the same room."""
PREMISE = (TURN, THINK, ANSWER)
"""Requests, behind an opening, a premise."""


@dataclass(frozen=True)
class Answer:
    """The experience model's prediction of one step."""

    reasoning: str
    state: str
    reward: float
    done: bool


def opening(task: Task, premise: str = "") -> list[str]:
    """The beginning of the trunk: task, initial state and premise."""
    return [OPENING, TASK, task.instruction, STATE, task.initial_state, *_premise_pieces(premise)]


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
    return [*pieces, TURN, task.instruction, *world, *recalled_pieces, STATE, state, ACTION, action, ANSWER]


def answer(transition: Transition, *, reasoning: bool) -> list[str]:
    """The target text of a transition."""
    outcome = CONTINUE if not transition.done else SUCCESS if transition.reward > 0.5 else FAILURE
    reasoning_pieces = [THINK, transition.reasoning] if reasoning else []
    return [*reasoning_pieces, STATE, transition.next_state, outcome]


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


def render_trajectory(
    vocabulary: Vocabulary,
    trajectory: Trajectory,
    demonstrations: Sequence[Sequence[Transition]],
    *,
    history: bool = True,
    recalled: int = 0,
    reasoning: bool = True,
) -> Example:
    """A whole episode as one training example, with the loss on the answers only.

    The loss is Eq. 5: -log P(R | ...) - log P(s', r | R, ...).

    Args:
        demonstrations: for each step, the transitions retrieved for it (may be empty).
        history: False shows each step the task and its state, but no earlier step.
        recalled: most earlier states that a turn repeats.
        reasoning: the answers begin with a reasoning.
    """
    premise = trajectory.premise
    segments = [_segment(vocabulary.encode(opening(trajectory.task, premise)), False)]
    for step, demos in zip(trajectory.steps, demonstrations, strict=True):
        earlier_states = recall(trajectory.up_to(step.step).states, step.action, recalled) if history else ()
        prompt = vocabulary.encode(
            turn(trajectory.task, step.state, step.action, demos, earlier_states, premise)
        )
        target = vocabulary.encode(answer(step, reasoning=reasoning))
        segments.append(Segment(prompt + target, [False] * len(prompt) + [True] * len(target), branch=True))
        if history:
            segments.append(_segment(vocabulary.encode(growth(step.action, step.next_state)), False))
    return Example(segments)


def render_variation(vocabulary: Vocabulary, task: Task, instruction: str) -> Example:
    """A training example of the task generator (Eq. 6): from a task and its room to the instruction of
    another task of such a room.
    """
    return _text_example(vocabulary, task, VARIATION, instruction)


def render_premise(vocabulary: Vocabulary, task: Task, premise: str) -> Example:
    """A training example of the hidden-state sampler: from a task and its room to a premise."""
    return _text_example(vocabulary, task, PREMISE, premise)


def _text_example(vocabulary: Vocabulary, task: Task, request: Sequence[str], text: str) -> Example:
    """The task's opening, then a branch of the request and the text, with the loss on the text."""
    trunk = vocabulary.encode(opening(task))
    prompt = vocabulary.encode(request)
    target = vocabulary.encode([text, END])
    return Example(
        [
            _segment(trunk, False),
            Segment(prompt + target, [False] * len(prompt) + [True] * len(target), branch=True),
        ]
    )


def _segment(tokens: list[int], loss: bool) -> Segment:
    return Segment(tokens, [loss] * len(tokens))
