"""Direct preference optimisation on whole episodes (Rafailov et al. 2023, arXiv 2305.18290, Eq. 7).

    -log sigmoid(beta (log pi(w) - log ref(w) - log pi(l) + log ref(l)))

    dreamgym retrain rl.algorithm.type=dpo rl.algorithm.sync_every=4

w is a success and l a failure of the same task; log pi(w) sums over the tokens that the agent wrote. As in
"Bridging Offline and Online Reinforcement Learning" (arXiv 2506.21495) the weights that play become those
that are trained every `sync_every` iterations: 1 is online, 0 never (offline: all is learnt from what the
initial policy did). The reference moves with them.

Deviations:
1. Each success is paired with one failure, in the order played: no episode of the rarer kind is left out, and
   none of the more frequent kind is repeated. Tasks without both are left out, as in the paper.
2. Log-probabilities are those at the sampling temperature.
3. `sync_every` counts iterations of `num_iterations` times `optimizer_steps` steps, where the paper counts
   steps: with both at 1 it is online in the paper's sense.
4. Offline means that the initial policy plays all episodes, new ones in each iteration, not that a fixed set
   of logs is read. The logged success rate is then that policy's: what training changes shows in `margin` and
   in the evaluation alone.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from components.config.algorithm_config import DPOConfig
from components.config.rl_config import RLConfig
from components.policy.policy import Policy
from components.policy.rl.algorithm import Algorithm, LossInputs, TrainingSample
from components.policy.rl.reference import Reference
from components.policy.rollout import Rollout


class DPO(Algorithm):
    """See the module."""

    figures = ("preferred", "margin")

    def __init__(self, config: RLConfig, options: DPOConfig) -> None:
        self.config = config
        self.options = options
        self._player: Policy | None = None
        self._reference: Reference | None = None
        self._saved_state: dict[str, Any] | None = None

    def acting_policy(self, policy: Policy, iteration: int) -> Policy:
        """The policy itself in iterations that synchronise, else a copy of it from the last one that did."""
        if self._player is None:
            self._copy_policy(policy)
        assert self._player is not None and self._reference is not None
        if self.options.sync_every and iteration % self.options.sync_every == 0:
            self._player.model.load_state_dict(policy.model.state_dict())
            self._reference.follow(policy)
            return policy
        return self._player

    def _copy_policy(self, policy: Policy) -> None:
        """Copies of the policy to play with and as reference, as it is or as they were saved."""
        self._player = policy.frozen_copy()
        self._reference = Reference(policy, self.config.temperature, self.config.batch_tokens)
        if self._saved_state:
            self._player.model.load_state_dict(self._saved_state["player"])
            self._reference.load_state_dict(self._saved_state["reference"])
            self._saved_state = None

    def training_samples(self, groups: Sequence[list[Rollout]], policy: Policy) -> list[TrainingSample]:
        """Pairs of a success and a failure, with the reference's log-probabilities."""
        pairs = [pair for group in groups for pair in preference_pairs(group)]
        if not pairs:
            return []
        assert self._reference is not None
        logprobs = self._reference.logprobs([rollout for pair in pairs for rollout in pair])
        return [
            TrainingSample(pair, {"reference": logprobs[2 * i] + logprobs[2 * i + 1]})
            for i, pair in enumerate(pairs)
        ]

    def token_weights(self, samples: Sequence[TrainingSample]) -> list[float]:
        """All pairs count alike."""
        return [1 / len(samples)] * len(samples)

    def loss(self, inputs: LossInputs) -> tuple[Tensor, dict[str, float]]:
        """The mean over pairs."""
        differences = (inputs.logprobs - inputs.targets["reference"]).split(inputs.token_counts)
        ratios = torch.stack([part.sum() for part in differences])
        weights = torch.stack([part[0] for part in inputs.token_weights.split(inputs.token_counts)])[0::2]
        losses = preference_loss(ratios[0::2], ratios[1::2], beta=self.options.beta)
        margins = (ratios[0::2] - ratios[1::2]).detach()
        figures = {
            "preferred": (weights * (margins > 0)).sum().item(),
            "margin": (weights * margins).sum().item(),
        }
        return (losses * weights).sum(), figures

    def state_dict(self) -> dict[str, Any]:
        """Weights of the policy that plays and of the reference."""
        if self._player is None or self._reference is None:
            return {}
        return {"player": self._player.model.state_dict(), "reference": self._reference.state_dict()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue from `state`."""
        self._saved_state = copy.copy(state) or None


def preference_pairs(group: Sequence[Rollout]) -> list[tuple[Rollout, Rollout]]:
    """(success, failure) of one task, as many as the rarer of the two; none without both."""
    successes = [rollout for rollout in group if rollout.reward > 0.5]
    failures = [rollout for rollout in group if rollout.reward <= 0.5]
    return list(zip(successes, failures, strict=False))


def preference_loss(chosen: Tensor, rejected: Tensor, *, beta: float) -> Tensor:
    """The loss of each pair, from the sums of log pi - log ref over its episodes; all tensors are [pairs]."""
    return -torch.nn.functional.logsigmoid(beta * (chosen - rejected))
