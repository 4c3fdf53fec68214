"""The interface of an RL algorithm: training samples from rollouts, and a loss of these samples.

Everything else (tasks, rollouts, batches, optimiser, checkpoints) belongs to the loop and the learner. An
algorithm is one file: its module docstring says what it computes and how it deviates from its paper.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

import torch
from torch import Tensor

from components.config.rl_config import RLConfig
from components.policy.policy import Policy
from components.policy.rollout import Rollout


@dataclass(frozen=True)
class TrainingSample:
    """One rollout, or a pair of rollouts, and what the loss needs of the n tokens that the policy wrote.

    Args:
        rollouts: one, or two that are compared with each other.
        targets: name -> n values, in the order of the tokens, one rollout after the other.
        has_signal: False if only the idle penalty is learnt from it, because no return stands out.
    """

    rollouts: tuple[Rollout, ...]
    targets: dict[str, list[float]] = field(default_factory=dict)
    has_signal: bool = True

    @property
    def token_count(self) -> int:
        """Tokens that the policy wrote."""
        return sum(rollout.written for rollout in self.rollouts)

    @property
    def length(self) -> int:
        """Tokens of the longest rollout, read and written."""
        return max(len(rollout.example) for rollout in self.rollouts)


@dataclass
class LossInputs:
    """The n tokens that the policy wrote in some training samples, as the policy scores them now.

    Args:
        logprobs: fp32 [n], in nats, with gradients.
        old: fp32 [n], log-probabilities of the sampler.
        hidden: [n, H], hidden states that the tokens were predicted from; None unless `needs_hidden`.
        targets: name -> fp32 [n], those of the samples.
        token_weights: fp32 [n], weight of each token in the update's mean.
        token_counts: written tokens of each rollout.
        total_tokens: written tokens of the whole update, of which these are a part.
    """

    logprobs: Tensor
    old: Tensor
    hidden: Tensor | None
    targets: dict[str, Tensor]
    token_weights: Tensor
    token_counts: list[int]
    total_tokens: int


class Algorithm:
    """Base of all algorithms: what most of them do not need has a default."""

    needs_hidden: ClassVar[bool] = False
    """Whether the loss reads hidden states."""
    figures: tuple[str, ...] = ()
    """Names of the figures that `loss` returns."""

    def start(self, policy: Policy, config: RLConfig) -> None:
        """Called once before the first iteration, with the policy that training starts from."""

    def acting_policy(self, policy: Policy, iteration: int) -> Policy:
        """The policy that plays the rollouts of an iteration; `policy` itself if training is on-policy."""
        return policy

    def training_samples(self, groups: Sequence[list[Rollout]], policy: Policy) -> list[TrainingSample]:
        """The samples of an iteration. Args: groups: rollouts of one task each; a group may be empty."""
        raise NotImplementedError

    def prepare_update(self, samples: list[TrainingSample]) -> list[TrainingSample]:
        """The samples with further targets; called with the threads of training, before the update."""
        return samples

    def token_weights(self, samples: Sequence[TrainingSample]) -> list[float]:
        """Weight of each token in the update's mean, one value per sample."""
        raise NotImplementedError

    def loss(self, inputs: LossInputs) -> tuple[Tensor, dict[str, float]]:
        """The loss of these tokens, a part of the update's loss, and their part of the figures by name."""
        raise NotImplementedError

    def parameters(self) -> list[torch.nn.Parameter]:
        """Weights of the algorithm's own that are trained too, such as a value head."""
        return []

    def own_learning_rate(self, learning_rate: float) -> float:
        """Learning rate of `parameters` in a step in which the policy's is `learning_rate`."""
        return learning_rate

    def state_dict(self) -> dict[str, Any]:
        """State that must survive a crash: plain values and tensors."""
        return {}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue from `state`."""
