"""Training examples of a policy: recorded episodes in the format of its vocabulary."""

from __future__ import annotations

from collections.abc import Sequence

from components.language.training.examples import Example, Segment
from components.policy.formats.agent_format import AgentFormat
from components.records import Trajectory


def render_demonstration(
    text: AgentFormat,
    trajectory: Trajectory,
    *,
    thoughts: Sequence[str] | None = None,
    imitated: Sequence[bool] | None = None,
) -> Example:
    """An episode as one example for cloning, with loss on thoughts and actions.

    Args:
        thoughts: one per step; None: the recorded ones.
        imitated: whether a step's reply has loss, one value per step; None: all of them.
    """
    task, steps = trajectory.task, trajectory.steps
    thoughts = [step.thought for step in steps] if thoughts is None else thoughts
    segments = [without_loss(text.opening(task))]
    for step, thought, has_loss in zip(steps, thoughts, imitated or [True] * len(steps), strict=True):
        reply = text.reply(thought, step.action)
        segments += [
            without_loss(text.ask(task)),
            Segment(reply, [has_loss] * len(reply)),
            without_loss(text.observation(step.next_state)),
        ]
    return Example(segments)


def without_loss(tokens: list[int]) -> Segment:
    """A segment of the trunk that is only read."""
    return Segment(tokens, [False] * len(tokens))
