"""The interface of an RL algorithm: training samples from rollouts, and a loss of these samples.

Everything else (tasks, rollouts, batches, optimiser, checkpoints) belongs to the loop and the learner. An
algorithm is one file: its module docstring says what it computes and how it deviates from its paper.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor

from components.config.rl_config import RLConfig
from components.language.training.token_scores import TokenScores
from components.policy.policy import Policy
from components.policy.rl.training_sample import TrainingSample
from components.policy.rollout import Rollout


@dataclass
class LossInputs:
    """The n tokens that the policy wrote in some training samples, as the policy scores them now.

    Args:
        logprobs: fp32 [n], in nats, with gradients.
        old: fp32 [n], log-probabilities of the sampler.
        hidden: [n, H], hidden states that the tokens were predicted from; None unless `needs_hidden`.
        targets: name -> fp32 [n], those of the samples.
        token_weights: fp32 [n], weight of each token in the update's mean.
        token_counts: number of written tokens of each rollout.
        total_tokens: number of written tokens of the whole optimiser step, of which these are a part.
    """

    logprobs: Tensor
    old: Tensor
    hidden: Tensor | None
    targets: dict[str, Tensor]
    token_weights: Tensor
    token_counts: list[int]
    total_tokens: int

    @classmethod
    def of_samples(
        cls,
        samples: Sequence[TrainingSample],
        token_weights: Sequence[float],
        scores: TokenScores,
        total_tokens: int,
        device: torch.device,
    ) -> LossInputs:
        """Return the inputs of some samples of an optimiser step.

        Args:
            token_weights: weight of each token in the mean, one value per sample.
            scores: of the samples' written tokens, in their order.
            total_tokens: number of written tokens of the whole optimiser step.
        """
        rollouts = [rollout for sample in samples for rollout in sample.rollouts]
        old_logprobs = [value for rollout in rollouts for value in rollout.logprobs]
        weights = [
            value
            for sample, value in zip(samples, token_weights, strict=True)
            for _ in range(sample.token_count)
        ]
        targets = {
            name: torch.tensor([value for sample in samples for value in sample.targets[name]], device=device)
            for name in samples[0].targets
        }
        return cls(
            logprobs=scores.logprobs,
            old=torch.tensor(old_logprobs, device=device),
            hidden=scores.hidden,
            targets=targets,
            token_weights=torch.tensor(weights, device=device),
            token_counts=[rollout.token_count for rollout in rollouts],
            total_tokens=total_tokens,
        )


class Algorithm(ABC):
    """Base of all algorithms. Methods that most algorithms do not need have a default."""

    needs_hidden: ClassVar[bool] = False
    """Whether the loss reads hidden states."""
    uses_old_logprobs: ClassVar[bool] = False
    """Whether the loss reads the log-probabilities of the policy that played."""
    needs_whole_model: bool = False
    """Whether it scores with the whole policy beside the learner, such as for a reference."""
    has_partner: bool = False
    """Whether another policy writes some of the replies that are trained on."""
    figures: tuple[str, ...] = ()
    """Names of the figures that `loss` returns."""

    def start(self, policy: Policy, config: RLConfig) -> None:  # noqa: B027 - most need none
        """Prepare for training; called once, with the initial policy, before the first iteration."""

    def acting_policy(self, policy: Policy, iteration: int) -> Policy:
        """Return the policy that plays an iteration's rollouts; `policy` itself if training is on-policy."""
        return policy

    @abstractmethod
    def training_samples(self, groups: Sequence[list[Rollout]], policy: Policy) -> list[TrainingSample]:
        """Return the samples of an iteration.

        Args:
            groups: rollouts of one task each; a group may be empty.
        """

    def report(self) -> dict[str, float]:
        """Return further figures of the last call of `training_samples`."""
        return {}

    def prepare_update(self, samples: list[TrainingSample]) -> list[TrainingSample]:
        """Return the samples with further targets; called before the update, with the threads of training."""
        return samples

    @abstractmethod
    def token_weights(self, samples: Sequence[TrainingSample]) -> list[float]:
        """Return the weight of each token in the step's mean, one value per sample."""

    @abstractmethod
    def loss(self, inputs: LossInputs) -> tuple[Tensor, dict[str, Tensor]]:
        """Return these tokens' part of the step's loss, and their part of the figures by name, fp64 []."""

    def parameters(self) -> list[torch.nn.Parameter]:
        """Return further weights to train that belong to the algorithm, such as a value head."""
        return []

    def own_learning_rate(self, learning_rate: float) -> float:
        """Return the learning rate of `parameters` in a step in which the policy's is `learning_rate`."""
        return learning_rate

    def state_dict(self) -> dict[str, Any]:
        """Return the state that must survive a crash: plain values and tensors."""
        return {}

    def load_state_dict(self, state: dict[str, Any]) -> None:  # noqa: B027 - most have none
        """Continue from `state`."""
