"""Preferences: which rollouts are compared, the loss of such a pair, and how well scores tell pairs apart."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from components.policy.rl.reference import Reference
from components.policy.rl.training_sample import TrainingSample
from components.policy.rollout import Rollout


def preference_pairs(group: Sequence[Rollout]) -> list[tuple[Rollout, Rollout]]:
    """Return (success, failure) pairs of one task, as many as the rarer of the two."""
    successes = [rollout for rollout in group if rollout.reward > 0.5]
    failures = [rollout for rollout in group if rollout.reward <= 0.5]
    return list(zip(successes, failures, strict=False))


def preference_loss(chosen: Tensor, rejected: Tensor, *, beta: float) -> Tensor:
    """Return the loss of each pair, [pairs].

    Args:
        chosen: [pairs], sums of log pi - log ref over the successes, in nats.
        rejected: [pairs], likewise over the failures.
    """
    return -torch.nn.functional.logsigmoid(beta * (chosen - rejected))


def preference_samples(
    pairs: Sequence[tuple[Rollout, Rollout]], reference: Reference
) -> list[TrainingSample]:
    """Return a sample for each pair, whose target `reference` has the reference's log-probabilities."""
    logprobs = reference.logprobs([rollout for pair in pairs for rollout in pair])
    return [
        TrainingSample(pair, {"reference": logprobs[2 * i] + logprobs[2 * i + 1]})
        for i, pair in enumerate(pairs)
    ]


def area_under_curve(scored: Sequence[tuple[float, bool]]) -> float:
    """Return the share of (success, failure) pairs whose success scores higher; a tie counts one half.

    NaN without such a pair.
    """
    wins = [score for score, won in scored if won]
    losses = [score for score, won in scored if not won]
    if not wins or not losses:
        return math.nan
    better = sum((win > loss) + 0.5 * (win == loss) for win in wins for loss in losses)
    return better / (len(wins) * len(losses))
