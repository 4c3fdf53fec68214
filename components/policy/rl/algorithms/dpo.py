"""Direct preference optimisation on whole episodes (Rafailov et al. 2023, arXiv 2305.18290, Eq. 7).

    -log sigmoid(beta (log pi(w) - log ref(w) - log pi(l) + log ref(l)))

    dreamgym retrain rl.algorithm.type=dpo rl.algorithm.sync_every=4

w is a success and l a failure of the same task. log pi(w) sums over the tokens that the agent wrote. Every
`sync_every` iterations the acting policy takes the trained weights, as in "Bridging Offline and Online
Reinforcement Learning" (arXiv 2506.21495). 1 is online; 0 is offline: the initial policy plays all episodes.
The reference takes the trained weights at the same time.

Deviations:
1. Each success is paired with one failure, in the order in which they were played. No episode of the rarer
   kind is left out, and none of the more frequent kind is repeated. Tasks without both are left out, as
   in the paper.
2. Log-probabilities are those at the sampling temperature.
3. `sync_every` counts iterations of `num_iterations` times `optimizer_steps` steps; the paper counts steps.
   With both at 1 it is online in the paper's sense. The update before the first iteration changes nothing:
   with as many as there are iterations it would be offline, and is refused.
4. Offline does not mean a fixed set of logs: the initial policy plays new episodes in each iteration. The
   logged success rate is then that of the initial policy. Progress shows only in `margin` and in the
   evaluation.
5. Adam's epsilon is 1e-8 and the norm of the gradient is clipped at 1, as for all algorithms here. The paper
   of semi-online DPO has 1e-4 (mathematics) or 1e-8 (chat), and 0.1.
6. A study's DPO has a tenth of GRPO's learning rate, because the log-probability of an episode is a sum over
   hundreds of tokens. The paper lists one rate, 1e-6, for both; a study's `dream-dpo-1-rl-rate` and
   `dream-dpo-offline-rl-rate` have one rate, too.
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
from components.policy.rl.algorithms.algorithm import Algorithm, LossInputs
from components.policy.rl.preferences import preference_loss, preference_pairs, preference_samples
from components.policy.rl.reference import Reference
from components.policy.rl.training_sample import TrainingSample
from components.policy.rollout import Rollout


class PreferenceLoss(Algorithm):
    """Base of the algorithms that train on pairs: DPO's loss.

    Args:
        beta: strength of the reference policy.
    """

    figures = ("preferred", "margin")
    needs_whole_model = True

    def __init__(self, beta: float) -> None:
        self.beta = beta

    def token_weights(self, samples: Sequence[TrainingSample]) -> list[float]:
        """Return equal weights for all pairs."""
        return [1 / len(samples)] * len(samples)

    def loss(self, inputs: LossInputs) -> tuple[Tensor, dict[str, Tensor]]:
        """Return the mean of the pairs' losses; `preferred` is the share of pairs with a positive margin."""
        differences = (inputs.logprobs - inputs.targets["reference"]).split(inputs.token_counts)
        ratios = torch.stack([part.sum() for part in differences])
        weights = torch.stack([part[0] for part in inputs.token_weights.split(inputs.token_counts)])[0::2]
        losses = preference_loss(ratios[0::2], ratios[1::2], beta=self.beta)
        margins = (ratios[0::2] - ratios[1::2]).detach()
        figures = {
            "preferred": (weights * (margins > 0)).sum().double(),
            "margin": (weights * margins).sum().double(),
        }
        return (losses * weights).sum(), figures


class DPO(PreferenceLoss):
    """Direct preference optimisation; see the module."""

    def __init__(self, config: RLConfig, options: DPOConfig) -> None:
        super().__init__(options.beta)
        self.config = config
        self.options = options
        self._acting_copy: Policy | None = None
        self._reference: Reference | None = None
        self._saved_state: dict[str, Any] | None = None

    def acting_policy(self, policy: Policy, iteration: int) -> Policy:
        """Return `policy` in iterations that synchronise, else a copy from the last one that did."""
        if self._acting_copy is None:
            self._copy_policy(policy)
        assert self._acting_copy is not None and self._reference is not None
        if self.options.sync_every and iteration % self.options.sync_every == 0:
            self._acting_copy.model.load_state_dict(policy.model.state_dict())
            self._reference.copy_weights(policy)
            return policy
        return self._acting_copy

    def _copy_policy(self, policy: Policy) -> None:
        """Create the acting copy and the reference, from the policy or from the saved state."""
        self._acting_copy = policy.frozen_copy()
        self._reference = Reference(policy, self.config.temperature, self.config.batch_tokens)
        if self._saved_state:
            self._acting_copy.model.load_state_dict(self._saved_state["player"])
            self._reference.load_state_dict(self._saved_state["reference"])
            self._saved_state = None

    def training_samples(self, groups: Sequence[list[Rollout]], policy: Policy) -> list[TrainingSample]:
        """Return pairs of a success and a failure, with the reference's log-probabilities."""
        pairs = [pair for group in groups for pair in preference_pairs(group)]
        if not pairs:
            return []
        assert self._reference is not None
        return preference_samples(pairs, self._reference)

    def state_dict(self) -> dict[str, Any]:
        """Return the weights of the acting copy and of the reference."""
        if self._acting_copy is None or self._reference is None:
            return {}
        return {"player": self._acting_copy.model.state_dict(), "reference": self._reference.state_dict()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue from `state`."""
        self._saved_state = copy.copy(state) or None
