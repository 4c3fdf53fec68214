"""Training examples of an experience model, in the format of its vocabulary.

The loss is Eq. 5: -log P(R | ...) - log P(s', r | R, ...), on the answers alone. The tokens of the outcome r
can weigh more.
"""

from __future__ import annotations

from collections.abc import Sequence

from components.experience.formats.world_format import WorldFormat, recorded_answer
from components.language.training.examples import Example, Segment
from components.records import Task, Trajectory, Transition


def render_trajectory(
    text: WorldFormat,
    trajectory: Trajectory,
    demonstrations: Sequence[Sequence[Transition]],
    *,
    history: bool = True,
    outcome_weight: float = 1.0,
) -> Example:
    """A whole episode as one training example, with the loss on the answers only.

    A step whose question and answer are what the trunk keeps of it is part of the trunk. Any other step is a
    branch.

    Args:
        demonstrations: for each step, the transitions retrieved for it (may be empty).
        history: False shows each step the task and its state, but no earlier step.
        outcome_weight: of the outcome's tokens in the loss; the other tokens of an answer have weight 1.
    """
    task, premise = trajectory.task, trajectory.premise
    segments = [_segment(text.opening(task, premise), False)]
    for step, demos in zip(trajectory.steps, demonstrations, strict=True):
        states = trajectory.up_to(step.step).states if history else [step.state]
        prompt = text.question(task, states, step.action, demos, premise)
        answer = recorded_answer(step)
        target = text.answer(answer)
        weights = _weights(text, target, outcome_weight)
        growth = text.growth(task, states, step.action, answer, premise) if history else []
        if growth == prompt + target:
            segments += [_segment(prompt, False), Segment(target, weights)]
            continue
        segments.append(Segment(prompt + target, [False] * len(prompt) + weights, branch=True))
        if history:
            segments.append(_segment(growth, False))
    return Example(segments)


def _weights(text: WorldFormat, target: list[int], outcome_weight: float) -> list[float]:
    """The weight of each token of the answer `target` in the loss."""
    if outcome_weight == 1:
        return [True] * len(target)
    start = text.outcome_start(target)
    return [True] * start + [outcome_weight] * (len(target) - start)


def render_variation(text: WorldFormat, task: Task, instruction: str) -> Example:
    """A training example of the task generator (Eq. 6): from a task and its room to the instruction of
    another task of such a room.
    """
    return _text_example(text.variation_prompt(task), text.text_answer(instruction))


def render_premise(text: WorldFormat, task: Task, premise: str) -> Example:
    """A training example of the hidden-state sampler: from a task and its room to a premise."""
    return _text_example(text.premise_prompt(task), text.text_answer(premise))


def _text_example(prompt: tuple[list[int], list[int]], target: list[int]) -> Example:
    """The trunk, then a branch of the request and the text, with the loss on the text."""
    trunk, request = prompt
    loss = [False] * len(request) + [True] * len(target)
    return Example([_segment(trunk, False), Segment(request + target, loss, branch=True)])


def _segment(tokens: list[int], loss: bool) -> Segment:
    return Segment(tokens, [loss] * len(tokens))
