"""The one renderer of transitions for the experience model, in training and in inference alike.

The stable part comes first and only ever grows (the trunk: task, states, actions); the volatile part comes
last and is rewound after each step (the branch: demonstrations, then the turn with its answer). So the cache
of the trunk is kept over a whole episode. The turn repeats the task, the initial state (what the world
consists of), the earlier states that speak of what the action names (`episodic_recall.py`) and the current
one: a small model concludes well over a short distance and copies badly over a long one.

    trunk    <task> instruction <state> s0 [<think> premise] <action> a0 <state> s1 <action> a1 <state> s2 ...
    branch   <demo> s a <state> s' ... <turn> instruction <state> s0 [<think> premise] <recall> s_i ...
    <state> s_t <action> a_t
             <think> R <state> s_t+1 <continue>

Where the backbone has a chat template all before the answer is one user message under way and the answer the
reply to it: the template opens before <task>, and closes the one and opens the other before <think>.

The answer ends with the outcome: <continue>, <success> (reward 1, done) or <failure> (reward 0, done).
Differs from the paper's prompt (App. C) in being terse: ours is read by models of a million parameters.
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
"""Behind an opening: what asks for another task of its room."""
PREMISE = (TURN, THINK, ANSWER)
"""Behind an opening: what asks for a premise."""


@dataclass(frozen=True)
class Answer:
    """What the experience model said of one step."""

    reasoning: str
    state: str
    reward: float
    done: bool


def opening(task: Task, premise: str = "") -> list[str]:
    """The trunk's start."""
    return [OPENING, TASK, task.instruction, STATE, task.initial_state, *_decided(premise)]


def _decided(premise: str) -> list[str]:
    return [THINK, premise] if premise else []


def growth(action: str, state: str) -> list[str]:
    """What a step adds to the trunk."""
    return [ACTION, action, STATE, state]


def turn(
    task: Task,
    state: str,
    action: str,
    demonstrations: Sequence[Transition],
    recalled: Sequence[str] = (),
    premise: str = "",
) -> list[str]:
    """The branch up to where the answer begins; the least similar demonstration comes first, the oldest of
    the recalled states too.
    """
    pieces: list[str] = []
    for demo in reversed(demonstrations):
        pieces += [DEMO, demo.state, ACTION, demo.action, STATE, demo.next_state]
    memories = [piece for memory in recalled for piece in (RECALL, memory)]
    world = [STATE, task.initial_state, *_decided(premise)]
    return [*pieces, TURN, task.instruction, *world, *memories, STATE, state, ACTION, action, ANSWER]


def answer(transition: Transition, *, reasoning: bool) -> list[str]:
    """The target text of a transition."""
    outcome = CONTINUE if not transition.done else SUCCESS if transition.reward > 0.5 else FAILURE
    thought = [THINK, transition.reasoning] if reasoning else []
    return [*thought, STATE, transition.next_state, outcome]


def parse_answer(pieces: Sequence[str], *, reasoning: bool) -> Answer | None:
    """Read the markers and texts of a generated answer; None if it does not follow the form exactly."""
    thought = ""
    if reasoning:
        if (
            len(pieces) < 2
            or pieces[0] != THINK
            or not isinstance(pieces[0], Marker)
            or isinstance(pieces[1], Marker)
        ):
            return None
        thought, pieces = pieces[1], pieces[2:]
    if len(pieces) != 3 or pieces[0] != STATE or isinstance(pieces[1], Marker) or pieces[2] not in OUTCOMES:
        return None
    if not isinstance(pieces[0], Marker) or not isinstance(pieces[2], Marker):
        return None
    return Answer(thought, pieces[1], 1.0 if pieces[2] == SUCCESS else 0.0, pieces[2] != CONTINUE)


def render_trajectory(
    vocabulary: Vocabulary,
    trajectory: Trajectory,
    demonstrations: Sequence[Sequence[Transition]],
    *,
    history: bool = True,
    recalled: int = 0,
    reasoning: bool = True,
) -> Example:
    """A whole episode as one training example, loss on the answers only (Eq. 5: -log P(R|...) - log P(s',
    r|R, ...)).

    Args:
        demonstrations: for each step, the transitions retrieved for it (may be empty).
        history: False shows each step the task and its state, but no earlier step.
        recalled: how many earlier states a turn shows again, at most.
    """
    premise = trajectory.premise
    segments = [_segment(vocabulary.encode(opening(trajectory.task, premise)), False)]
    for step, demos in zip(trajectory.steps, demonstrations, strict=True):
        memories = recall(trajectory.up_to(step.step).states, step.action, recalled) if history else ()
        prompt = vocabulary.encode(turn(trajectory.task, step.state, step.action, demos, memories, premise))
        target = vocabulary.encode(answer(step, reasoning=reasoning))
        segments.append(Segment(prompt + target, [False] * len(prompt) + [True] * len(target), branch=True))
        if history:
            segments.append(_segment(vocabulary.encode(growth(step.action, step.next_state)), False))
    return Example(segments)


def render_variation(vocabulary: Vocabulary, task: Task, instruction: str) -> Example:
    """A training example of the task generator (Eq. 6): from a task and its room to another task of such a
    room.
    """
    trunk = vocabulary.encode(opening(task))
    target = vocabulary.encode([instruction, END])
    prompt = vocabulary.encode(VARIATION)
    return Example(
        [
            _segment(trunk, False),
            Segment(prompt + target, [False] * len(prompt) + [True] * len(target), branch=True),
        ]
    )


def render_premise(vocabulary: Vocabulary, task: Task, premise: str) -> Example:
    """A training example of the beginning of a dream: from a task and its room to where the things lie that
    decide it.
    """
    trunk, prompt, target = (vocabulary.encode(pieces) for pieces in (opening(task), PREMISE, [premise, END]))
    return Example(
        [
            _segment(trunk, False),
            Segment(prompt + target, [False] * len(prompt) + [True] * len(target), branch=True),
        ]
    )


def _segment(tokens: list[int], loss: bool) -> Segment:
    return Segment(tokens, [loss] * len(tokens))
