"""Group-relative policy optimisation (Shao et al. 2024, arXiv 2402.03300), as DreamGym uses it: A = (r - mean_G) / std_G.

Deviations:
1. The outcome is the return, and every token that the policy wrote in an episode (thoughts and actions) has its advantage, plus
   `step_weight` times GiGPO's advantage of its step, which tells the step that decided from those that did not.
2. Groups whose returns are all equal have no such advantages; they are counted, and left out unless 6 applies.
3. `loss_mean: token` takes the mean over the tokens of all kept episodes together (as DAPO does), so a long episode counts for
   more; `episode` is the formula's own mean of the episodes' means. A lost episode runs to the step limit, a won one ends early,
   so by tokens most of the gradient comes from losses.
4. No KL term: a small policy has nothing to hold on to that its own start does not give; the clip bounds each update.
5. The probabilities in the ratio are those of the sampler at its temperature.
6. The tokens of a reply that left the state as it was, word for word, lose `idle_penalty` (verl-agent's penalty for invalid
   actions, for a world that does not say which actions are valid), also in groups without variance.
7. Advantages below zero count `negative_weight` times. At 0 only what went better than its group is learnt, as in RAFT, and an idle
   reply is merely not imitated: pushed away from what it wrote, a small model seems to write more nonsense (docs/experiments.md).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import torch
from torch import Tensor

from components.policy.rollout import Rollout

EPSILON = 1e-6


def group_advantages(returns: Sequence[float], *, normalise: bool) -> list[float]:
    """Advantages of one group from its returns; all zero where the returns are all equal. The deviation is the population's."""
    mean = sum(returns) / len(returns)
    centred = [value - mean for value in returns]
    if not normalise:
        return centred
    deviation = (sum(value * value for value in centred) / len(returns)) ** 0.5
    return [value / (deviation + EPSILON) if deviation > 0 else 0.0 for value in centred]


def step_advantages(group: Sequence[Rollout], *, discount: float) -> list[list[float]]:
    """GiGPO's advantage of each reply (Feng et al. 2025, arXiv 2505.10978, Eq. 6 to 8), for one group of rollouts of one task.

    Replies to the same state, word for word, anywhere in the group, are a group of their own; what is compared in it is the
    discounted return from there, discount^(steps to the end) * outcome. 0.0 where a state was met once only. Not divided by the
    deviation: of two successes, one a step longer, that would make as much as of a success and a failure.
    """
    returns = [[rollout.reward * discount ** (len(rollout.idle) - 1 - step) for step in range(len(rollout.idle))] for rollout in group]
    met: dict[str, list[tuple[int, int]]] = {}
    for row, rollout in enumerate(group):
        for step in range(len(rollout.idle)):
            met.setdefault(rollout.trajectory.states[step], []).append((row, step))
    advantages = [[0.0] * len(rollout.idle) for rollout in group]
    for places in met.values():
        values = group_advantages([returns[row][step] for row, step in places], normalise=False)
        for (row, step), value in zip(places, values, strict=True):
            advantages[row][step] = value
    return advantages


def token_advantages(rollout: Rollout, advantages: Sequence[float]) -> list[float]:
    """The advantage of each reply, for each token of it."""
    replies = [segment for segment in rollout.example.segments if any(segment.loss)]
    return [value for segment, value in zip(replies, advantages, strict=True) for flagged in segment.loss if flagged]


def mean_shares(lengths: Sequence[int], loss_mean: Literal["episode", "token"]) -> list[float]:
    """The share that each token of an episode has in the mean, one value an episode of `lengths` tokens."""
    if loss_mean == "token":
        return [1 / sum(lengths)] * len(lengths)
    return [1 / (len(lengths) * length) for length in lengths]


def clipped_loss(new: Tensor, old: Tensor, advantages: Tensor, clip: float) -> tuple[Tensor, Tensor]:
    """Sum over tokens of -min(ratio * A, clip(ratio) * A), and the number of tokens whose ratio was clipped.

    Args:
        new, old, advantages: [n], of the tokens that the policy wrote; log-probabilities in nats.
    """
    ratio = torch.exp(new - old)
    bounded = ratio.clamp(1 - clip, 1 + clip)
    loss = -torch.minimum(ratio * advantages, bounded * advantages)
    clipped = ((ratio - bounded).abs() > 0) & (ratio * advantages > bounded * advantages)
    return loss.sum(), clipped.sum()
