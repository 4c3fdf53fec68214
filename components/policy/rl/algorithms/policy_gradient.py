"""Base of the policy-gradient algorithms: clipped ratio, KL divergence, means over episodes or tokens.

    dreamgym retrain rl.algorithm.cross_policy_share=0.2

With a `cross_policy_share` another policy writes a share of the replies of each episode, and all replies are
trained on (AgentRL's cross-policy sampling, arXiv 2510.04206; `crossed_engines.py`). The loss of a token is

    min(pi(token) / mu(token), C) * clipped loss, with pi of the trained policy before the update as old

where mu is the policy that wrote the token: weights of the trained policy's own tokens are 1
(`sampler_correction.py`).

Deviations from the paper:
1. The other policy is the initial one of the stage, which stays fixed. The paper has a pool of models.
2. The importance weights, truncated at C = 2, are our choice: they bound the variance, and tokens that the
   trained policy finds more than twice as likely count too little.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Literal

import torch
from torch import Tensor

from components.config.algorithm_config import PolicyGradientConfig
from components.config.rl_config import RLConfig
from components.policy.policy import Policy
from components.policy.rl.algorithms.algorithm import Algorithm, LossInputs
from components.policy.rl.players.sampler_correction import IMPORTANCE
from components.policy.rl.reference import Reference
from components.policy.rl.training_checks import check_partner
from components.policy.rl.training_sample import TrainingSample


class PolicyGradient(Algorithm):
    """Base of GRPO and PPO: algorithms with advantages and a clipped loss."""

    uses_old_logprobs = True

    def __init__(self, options: PolicyGradientConfig) -> None:
        self._options = options
        self._reference: Reference | None = None
        self._partner: Policy | None = None
        self.needs_whole_model = bool(options.beta)
        self.has_partner = bool(options.cross_policy_share)
        self.figures = ("clip_share", "approx_kl", *(["kl"] if options.beta else []))

    def start(self, policy: Policy, config: RLConfig) -> None:
        """Copy the initial policy if the loss has the KL divergence from it (`beta`), or if it plays too.

        Raises:
            TrainingError: it would play, and the engine of this machine holds one policy alone.
        """
        if self._options.beta:
            self._reference = Reference(policy, config.temperature, config.batch_tokens)
        if self.has_partner:
            check_partner(policy.engine_name)
            self._partner = policy.frozen_copy()

    def acting_policy(self, policy: Policy, iteration: int) -> Policy:
        """Return the policy, which plays with the initial one if there is a `cross_policy_share`."""
        if self._partner is None:
            return policy
        self._partner.max_new_tokens = policy.max_new_tokens
        return policy.with_partner(self._partner, self._options.cross_policy_share)

    def prepare_update(self, samples: list[TrainingSample]) -> list[TrainingSample]:
        """Return the samples; with `beta`, their target `reference` holds the initial policy's scores."""
        if self._reference is None:
            return samples
        rollouts = [rollout for sample in samples for rollout in sample.rollouts]
        logprobs = iter(self._reference.logprobs(rollouts))
        return [
            replace(
                sample,
                targets=sample.targets
                | {"reference": [value for _ in sample.rollouts for value in next(logprobs)]},
            )
            for sample in samples
        ]

    def token_weights(self, samples: Sequence[TrainingSample]) -> list[float]:
        """Return the weights of `mean_weights` for the configured aggregation."""
        return mean_weights([sample.token_count for sample in samples], self._options.loss_aggregation)

    def surrogate(self, inputs: LossInputs) -> tuple[Tensor, dict[str, Tensor]]:
        """Return the clipped loss of each token, fp32 [n], plus `beta` times its KL divergence; and figures.

        The figures are `clip_share`, the share of clipped tokens; `approx_kl`, the divergence from the policy
        that played; and with `beta` also `kl`, the divergence from the initial policy.
        """
        options = self._options
        losses, clipped = clipped_loss(
            inputs.logprobs, inputs.old, inputs.targets["advantage"], options.epsilon, options.epsilon_high
        )
        if IMPORTANCE in inputs.targets:
            losses = losses * inputs.targets[IMPORTANCE]
        sampler_divergence = kl_estimate(inputs.old, inputs.logprobs.detach())
        figures = {
            "clip_share": clipped.double() / inputs.total_tokens,
            "approx_kl": sampler_divergence.sum().double() / inputs.total_tokens,
        }
        if options.beta:
            divergence = kl_estimate(inputs.logprobs, inputs.targets["reference"])
            figures["kl"] = divergence.detach().sum().double() / inputs.total_tokens
            losses = losses + options.beta * divergence
        return losses, figures


def mean_weights(token_counts: Sequence[int], aggregation: Literal["episode", "token"]) -> list[float]:
    """Return the weight of each token of an episode in the mean, one value per episode.

    Args:
        token_counts: number of tokens of each episode.
        aggregation: `episode` is the mean of the episodes' means, `token` the mean over all tokens.
    """
    if aggregation == "token":
        return [1 / sum(token_counts)] * len(token_counts)
    return [1 / (len(token_counts) * count) for count in token_counts]


def clipped_loss(
    new: Tensor, old: Tensor, advantages: Tensor, low: float, high: float
) -> tuple[Tensor, Tensor]:
    """Return the loss of each token, [n], and the number of clipped tokens.

    The loss is -min(ratio * A, clip(ratio, 1 - low, 1 + high) * A) with ratio = exp(new - old): Schulman et
    al. 2017, arXiv 1707.06347, Eq. 7. `high` above `low` is DAPO's clip-higher (arXiv 2503.14476).

    Args:
        new: [n], log-probabilities of the trained policy, in nats.
        old: [n], log-probabilities of the policy that played, in nats.
        advantages: [n], A of each token.
    """
    ratio = torch.exp(new - old)
    clamped = ratio.clamp(1 - low, 1 + high)
    clipped = ((ratio - clamped).abs() > 0) & (ratio * advantages > clamped * advantages)
    return -torch.minimum(ratio * advantages, clamped * advantages), clipped.sum()


def kl_estimate(new: Tensor, reference: Tensor) -> Tensor:
    """Return an estimate of KL(new || reference) per token, [n], in nats, from samples of `new`.

    It is exp(d) - d - 1 with d = reference - new: unbiased on-policy and never negative (Schulman 2020,
    "Approximating KL divergence", k3; GRPO's Eq. 4). If the samples are older than `new`, DeepSeek-V3.2
    weights it by the ratio. That is left out here, because the clip keeps the two policies close. With
    `cross_policy_share` some samples are the reference's own, and the estimate is biased.

    Args:
        new: [n], log-probabilities in nats.
        reference: [n], log-probabilities in nats.
    """
    difference = reference - new
    return torch.exp(difference) - difference - 1
