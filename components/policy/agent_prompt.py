"""The agent's text: one growing sequence per episode. Each turn repeats the task and the initial state, and
the agent writes a thought before each action.

    <task> instruction <state> s0 <turn> instruction <state> s0 <think> thought <action> a0 <end> <state> s1
    <turn> ...

With a chat template, replies are the assistant's messages and all other text is the user's.

Deviation from the paper: its agent prompt (verl-agent's template) also lists the admissible actions. Ours
does not, because a dream has no such list. The text is append-only, so a cache of the prefix serves every
step.
"""

from __future__ import annotations

from collections.abc import Sequence

from components.language.markers import ACTION, ANSWER, END, OPENING, RESUME, STATE, TASK, THINK, TURN, Marker
from components.language.tokenizer import Vocabulary
from components.language.training.examples import Example, Segment
from components.records import Task, Trajectory


def opening(task: Task) -> list[str]:
    """Return the pieces that start an episode: instruction and initial state."""
    return [OPENING, TASK, task.instruction, STATE, task.initial_state]


def turn(task: Task) -> list[str]:
    """Return the pieces that ask for the next thought and action."""
    return [TURN, task.instruction, STATE, task.initial_state, ANSWER, THINK]


def reply(thought: str, action: str) -> list[str]:
    """Return the pieces that the agent writes in one step."""
    return [thought, ACTION, action, END]


def observation(state: str) -> list[str]:
    """Return the pieces that show the agent the state after its action."""
    return [RESUME, STATE, state]


def parse_reply(pieces: Sequence[str]) -> tuple[str, str]:
    """Return (thought, action) of a generated reply.

    If the reply does not follow the form, the action is "", which the environment refuses. The thought is
    then the whole text.
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
    """Return an episode as one example for cloning, with loss on thoughts and actions.

    Args:
        thoughts: one per step.
        imitated: whether a step's reply has loss, one value per step; None: all of them.
    """
    segments = [_segment_without_loss(vocabulary, opening(trajectory.task))]
    for step, thought, has_loss in zip(
        trajectory.steps, thoughts, imitated or [True] * len(thoughts), strict=True
    ):
        reply_tokens = vocabulary.encode(reply(thought, step.action))
        segments += [
            _segment_without_loss(vocabulary, turn(trajectory.task)),
            Segment(reply_tokens, [has_loss] * len(reply_tokens)),
            _segment_without_loss(vocabulary, observation(step.next_state)),
        ]
    return Example(segments)


def _segment_without_loss(vocabulary: Vocabulary, pieces: Sequence[str]) -> Segment:
    tokens = vocabulary.encode(pieces)
    return Segment(tokens, [False] * len(tokens))
