"""Corrects rollouts for a sampler whose numbers differ from the trainer's: bf16 weights, another engine, or
weights before the last update.

The sampler's log-probabilities are not those of the policy that is trained. So the trainer scores the written
tokens again, and these scores are the old log-probabilities of the clipped loss. What the sampler drew too
often or too seldom is weighted by the truncated ratio min(exp(trainer - sampler), C) (truncated importance
sampling: Yao et al. 2025, "Your efficient RL framework secretly brings you off-policy RL training").

Rounding in bf16 leaves the mean of the ratios near 1 while single tokens are far off, so their spread is
reported.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import torch

from components.policy.policy import Policy
from components.policy.rl.log_probabilities import score_without_gradients
from components.policy.rl.training_checks import check_logprob_gap
from components.policy.rl.training_sample import TrainingSample
from components.policy.rollout import Rollout

MAX_WEIGHT = 2.0
"""C: largest importance weight of a token."""
NEAR_ONE = (0.8, 1.25)
"""Ratios outside this interval are counted in `sampler_ratio_outside`."""
IMPORTANCE = "importance"
"""Target of a training sample with the weights."""
RATIO_FIGURES = ("sampler_ratio_p01", "sampler_ratio_p50", "sampler_ratio_p99", "sampler_ratio_outside")
"""1st, 50th and 99th percentile of the tokens' ratios, and the share outside `NEAR_ONE`."""


def correct_for_sampler(
    policy: Policy,
    samples: Sequence[TrainingSample],
    *,
    temperature: float,
    batch_tokens: int,
    is_stale: bool = False,
) -> tuple[list[TrainingSample], dict[str, float]]:
    """Return the samples with the trainer's log-probabilities and importance weights, and figures.

    The figures are `RATIO_FIGURES` and `logprob_gap`, the mean difference in nats per token.

    Args:
        policy: the trained one, before the update.
        temperature: of sampling.
        batch_tokens: maximum padded size of a forward pass, in tokens.
        is_stale: whether the policy has been updated since it played.

    Raises:
        TrainingError: sampler and trainer differ by more than rounding, although the policy is the same.
    """
    rollouts = [rollout for sample in samples for rollout in sample.rollouts]
    scored = dict(
        score_without_gradients(policy, rollouts, temperature=temperature, batch_tokens=batch_tokens)
    )
    corrected = [
        replace(rollout, logprobs=scored[row].logprobs.tolist()) for row, rollout in enumerate(rollouts)
    ]
    differences = torch.tensor(
        [
            new - old
            for after, before in zip(corrected, rollouts, strict=True)
            for new, old in zip(after.logprobs, before.logprobs, strict=True)
        ]
    )
    gap = float(differences.abs().mean())
    if not is_stale:
        check_logprob_gap(gap)
    by_rollout = iter(zip(corrected, rollouts, strict=True))
    return [_corrected_sample(sample, [next(by_rollout) for _ in sample.rollouts]) for sample in samples], {
        "logprob_gap": gap,
        **ratio_figures(differences.exp()),
    }


def ratio_figures(ratios: torch.Tensor) -> dict[str, float]:
    """Return `RATIO_FIGURES` of the tokens' ratios, fp32 [n]."""
    low, high = NEAR_ONE
    quantiles = torch.quantile(ratios[: 1 << 24], torch.tensor([0.01, 0.5, 0.99])).tolist()
    outside = float(((ratios < low) | (ratios > high)).float().mean())
    return dict(zip(RATIO_FIGURES, [*quantiles, outside], strict=True))


def _corrected_sample(sample: TrainingSample, pairs: Sequence[tuple[Rollout, Rollout]]) -> TrainingSample:
    """Return the sample with corrected rollouts. Args: pairs: (corrected, sampled) rollout."""
    weights = [
        min(MAX_WEIGHT, math.exp(new - old))
        for after, before in pairs
        for new, old in zip(after.logprobs, before.logprobs, strict=True)
    ]
    return replace(
        sample,
        rollouts=tuple(after for after, _ in pairs),
        targets=sample.targets | {IMPORTANCE: weights},
    )
