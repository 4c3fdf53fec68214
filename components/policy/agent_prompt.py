"""The agent's text: one growing sequence an episode, task and initial state repeated in every turn, a thought
before each action.

    <task> instruction <state> s0 <turn> instruction <state> s0 <think> thought <action> a0 <end> <state> s1
    <turn> ...

Where the backbone has a chat template the replies are the assistant's messages, and all else the user's.

The paper's agent prompt (verl-agent's template) also lists the admissible actions; ours does not, since a
dream has no such list. Nothing is ever taken back, so the cache of the whole prefix serves every step.
"""

from __future__ import annotations

from collections.abc import Sequence

from components.language.markers import ACTION, ANSWER, END, OPENING, RESUME, STATE, TASK, THINK, TURN, Marker
from components.language.tokenizer import Vocabulary
from components.language.training.examples import Example, Segment
from components.records import Task, Trajectory


def opening(task: Task) -> list[str]:
    """The start of an episode."""
    return [OPENING, TASK, task.instruction, STATE, task.initial_state]


def turn(task: Task) -> list[str]:
    """What asks for the next thought and action."""
    return [TURN, task.instruction, STATE, task.initial_state, ANSWER, THINK]


def reply(thought: str, action: str) -> list[str]:
    """What the agent writes."""
    return [thought, ACTION, action, END]


def observation(state: str) -> list[str]:
    """What the world answers."""
    return [RESUME, STATE, state]


def parse_reply(pieces: Sequence[str]) -> tuple[str, str]:
    """(thought, action) of a generated reply; the action is "" where the form was not followed (the world
    refuses that).
    """
    texts = [piece for piece in pieces if piece != END or not isinstance(piece, Marker)]
    form = [isinstance(piece, Marker) and str(piece) for piece in texts]
    if form == [ACTION, False]:
        return "", texts[1]
    if form == [False, ACTION, False]:
        return texts[0], texts[2]
    return " ".join(texts), ""


def render_demonstration(
    vocabulary: Vocabulary,
    trajectory: Trajectory,
    thoughts: Sequence[str],
    imitated: Sequence[bool] | None = None,
) -> Example:
    """An episode as one example for cloning, loss on thoughts and actions of the steps that are `imitated`
    (default: all).
    """
    segments = [_plain(vocabulary, opening(trajectory.task))]
    for step, thought, wish in zip(
        trajectory.steps, thoughts, imitated or [True] * len(thoughts), strict=True
    ):
        wanted = vocabulary.encode(reply(thought, step.action))
        segments += [
            _plain(vocabulary, turn(trajectory.task)),
            Segment(wanted, [wish] * len(wanted)),
            _plain(vocabulary, observation(step.next_state)),
        ]
    return Example(segments)


def _plain(vocabulary: Vocabulary, pieces: Sequence[str]) -> Segment:
    tokens = vocabulary.encode(pieces)
    return Segment(tokens, [False] * len(tokens))
