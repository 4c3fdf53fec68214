"""What policy-gradient algorithms share: the clipped ratio, the KL divergence, means over episodes or
tokens.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Literal

import torch
from torch import Tensor

from components.config.algorithm_config import PolicyGradientConfig
from components.config.rl_config import RLConfig
from components.policy.policy import Policy
from components.policy.rl.algorithm import Algorithm, LossInputs, TrainingSample
from components.policy.rl.reference import Reference
from components.policy.rl.rewards import Rewards


class PolicyGradient(Algorithm):
    """Base of GRPO and PPO."""

    def __init__(self, options: PolicyGradientConfig, rewards: Rewards) -> None:
        self.rewards = rewards
        self._options = options
        self._reference: Reference | None = None
        self.figures = ("clip_share", "approx_kl", *(["kl"] if options.beta else []))

    def start(self, policy: Policy, config: RLConfig) -> None:
        """Keep a copy of the initial policy if the KL divergence from it counts."""
        if self._options.beta:
            self._reference = Reference(policy, config.temperature, config.batch_tokens)

    def prepare_update(self, samples: list[TrainingSample]) -> list[TrainingSample]:
        """The samples with the initial policy's log-probabilities as target `reference`, if `beta` is set."""
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
        """See `mean_weights`."""
        return mean_weights([sample.token_count for sample in samples], self._options.loss_aggregation)

    def surrogate(self, inputs: LossInputs) -> tuple[Tensor, dict[str, float]]:
        """The clipped loss of each token, fp32 [n], plus `beta` times its KL divergence; and their figures.

        `clip_share`; `approx_kl`, the divergence from the policy that played; `kl`, that from the initial
        one.
        """
        options = self._options
        losses, clipped = clipped_loss(
            inputs.logprobs, inputs.old, inputs.targets["advantage"], options.epsilon, options.epsilon_high
        )
        drift = kl_estimate(inputs.old, inputs.logprobs.detach())
        figures = {
            "clip_share": clipped.item() / inputs.total_tokens,
            "approx_kl": drift.sum().item() / inputs.total_tokens,
        }
        if options.beta:
            divergence = kl_estimate(inputs.logprobs, inputs.targets["reference"])
            figures["kl"] = divergence.detach().sum().item() / inputs.total_tokens
            losses = losses + options.beta * divergence
        return losses, figures

    def state_dict(self) -> dict[str, Any]:
        """State of the rewards."""
        return {"rewards": self.rewards.state_dict()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue from `state`."""
        self.rewards.load_state_dict(state["rewards"])


def mean_weights(token_counts: Sequence[int], aggregation: Literal["episode", "token"]) -> list[float]:
    """Weight of each token of an episode in the mean, one value per episode.

    Args: token_counts: of each episode; aggregation: mean of the episodes' means, or over all tokens.
    """
    if aggregation == "token":
        return [1 / sum(token_counts)] * len(token_counts)
    return [1 / (len(token_counts) * count) for count in token_counts]


def clipped_loss(
    new: Tensor, old: Tensor, advantages: Tensor, low: float, high: float
) -> tuple[Tensor, Tensor]:
    """-min(ratio * A, clip(ratio, 1 - low, 1 + high) * A) of each token, and the number of clipped tokens.

    Schulman et al. 2017, arXiv 1707.06347, Eq. 7; `high` above `low` is DAPO's clip-higher (arXiv
    2503.14476).

    Args: new, old, advantages: [n], of the tokens that the policy wrote; log-probabilities in nats.
    """
    ratio = torch.exp(new - old)
    bounded = ratio.clamp(1 - low, 1 + high)
    clipped = ((ratio - bounded).abs() > 0) & (ratio * advantages > bounded * advantages)
    return -torch.minimum(ratio * advantages, bounded * advantages), clipped.sum()


def kl_estimate(new: Tensor, reference: Tensor) -> Tensor:
    """Estimate of KL(new || reference) per token, from samples of `new`: exp(d) - d - 1, d = reference - new.

    Unbiased on-policy and never negative (Schulman 2020, "Approximating KL divergence", k3; GRPO's Eq. 4). It
    is not weighted by the ratio where the samples are older than `new` (DeepSeek-V3.2's correction): the clip
    keeps the two close. Args: new, reference: [n], log-probabilities in nats.
    """
    difference = reference - new
    return torch.exp(difference) - difference - 1
