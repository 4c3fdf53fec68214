"""Observed states as training examples: ECHO's auxiliary loss (Shrivastava et al. 2026, arXiv 2605.24517).

    L = L_RL(tokens of the policy) + observation_weight * CE(tokens of the states that its actions led to)

    dreamgym retrain rl.observation_weight=0.1

The policy also learns what its actions do, from failed rollouts as well. CE is the mean of -log p over the
observed tokens of an optimiser step, in nats.

Deviations from the paper:
1. The observations have a forward pass of their own; the paper reads both losses off one.
2. The state after an episode's last action is left out: the policy never reads it.
3. Rollouts whose group has no advantage are trained on too, spread evenly over the steps of an update.
"""

from __future__ import annotations

from collections.abc import Sequence

from components.language.training.examples import Example, Segment
from components.policy.formats.agent_format import AgentFormat
from components.policy.rollout import Rollout


def observation_examples(text: AgentFormat, groups: Sequence[Sequence[Rollout]]) -> list[Example]:
    """Return each rollout that observed a state, with loss on the tokens of these states alone."""
    examples = (_observation_example(text, rollout) for group in groups for rollout in group)
    return [example for example in examples if any(segment.predicted for segment in example.segments)]


def _observation_example(text: AgentFormat, rollout: Rollout) -> Example:
    """Return the rollout as one segment. A state lies between two replies, before the next question."""
    tokens = [token for segment in rollout.example.segments for token in segment.tokens]
    is_written = [bool(weight) for segment in rollout.example.segments for weight in segment.loss]
    ask = len(text.ask(rollout.trajectory.task))
    replies = [place for place in range(1, len(tokens)) if is_written[place] and not is_written[place - 1]]
    loss = [False] * len(tokens)
    for state, reply in zip(rollout.trajectory.states[1:], replies[1:], strict=False):
        _, target = text.observation_parts(state)
        end = reply - ask
        loss[end - len(target) : end] = [True] * len(target)
    return Example([Segment(tokens, loss)])
