"""iStar: rewards of single replies from a model that learns to prefer successes (arXiv 2509.19199).

    r_t = BETA * (log phi(reply t) - log old(reply t))
    A_t = A_episode + ALPHA * (r_t - mean r) / std r

    dreamgym retrain rl.algorithm.step_credit=istar

phi begins as a copy of the policy. Before each update of the policy it is trained by DPO on the pairs of a
success and a failure of this iteration, with the policy that played (old) as reference.

Deviations from the paper:
1. Mean and deviation of r are those of all replies that the update trains on.
2. phi learns at a constant RATE = 0.1 times the policy's first rate; the paper's phi at twice the policy's
   (1e-6 and 5e-7). Our policy is small and learns at 5e-4, a thousand times the paper's rate, and the
   log-ratio of an episode is a sum over hundreds of tokens. RATE is a choice: it was not tuned. phi takes the
   optimiser steps of one pass over the pairs before it scores.
3. Pairs are those of `preference_pairs`: each episode is in one pair at most. Log-probabilities are those at
   the sampling temperature, and phi sees what the policy saw.
4. Without a pair in an iteration phi stays as it is. Where all r are equal to rounding, as before the first
   pair, nothing is added. From the first pair on, episodes of groups without variance are trained on, too,
   and count as a learning signal.
5. The penalty of idle replies is part of A_episode, and negative A_t are multiplied by
   `negative_advantage_weight`, as in `grpo.py`.
6. Where the sampler's log-probabilities are corrected (bf16, staleness), r has the corrected ones as old, and
   phi is trained with those of the sampler.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch

from components.config.rl_config import RLConfig
from components.policy.policy import Policy
from components.policy.rl.advantages.group_advantages import weighted
from components.policy.rl.log_probabilities import pack_by_length, score_tokens, score_without_gradients
from components.policy.rl.preferences import preference_loss, preference_pairs
from components.policy.rl.training_sample import TrainingSample
from components.policy.rollout import Rollout

ALPHA = 1.0
BETA = 0.05
"""The paper's values."""
RATE = 0.1
"""Learning rate of phi, in that of the policy; 2 in the paper (deviation 2)."""
BETAS = (0.9, 0.95)
"""Of phi's optimiser, as of the policy's (`learner.py`)."""
LEAST_DEVIATION = 1e-4
"""Deviations of r below it are rounding errors of log-probabilities, and no preferences."""
FIGURES = ("implicit_accuracy", "implicit_loss")
"""Names of what `ImplicitRewards.pair_figures` returns."""


class ImplicitRewards:
    """The model phi, and the rewards of replies that follow from it.

    Args:
        policy: the initial policy, of which phi is a copy.
        config: settings of the stage.
        optimizer_steps: steps of an update of phi.
    """

    def __init__(self, policy: Policy, config: RLConfig, optimizer_steps: int) -> None:
        self._model = policy.frozen_copy()
        self._config = config
        self._steps = optimizer_steps
        trained = {name for name, weight in policy.model.named_parameters() if weight.requires_grad}
        own = self._model.model.named_parameters()
        self._weights = [weight.requires_grad_(True) for name, weight in own if name in trained]
        rate = RATE * config.learning_rate
        self._optimizer = torch.optim.AdamW(self._weights, lr=rate, betas=BETAS, weight_decay=0.0)

    def tells_replies_apart(self, groups: Sequence[list[Rollout]]) -> bool:
        """Whether phi differs from the initial policy, or will after it has learnt from `groups`."""
        return bool(self._optimizer.state) or any(map(preference_pairs, groups))

    def learn(self, groups: Sequence[list[Rollout]]) -> None:
        """Train phi on the pairs of `groups`, in as many optimiser steps as the policy takes in a pass."""
        pairs = [pair for group in groups for pair in preference_pairs(group)]
        for step in range(min(self._steps, len(pairs))):
            batch = pairs[step :: self._steps]
            lengths = [2 * max(len(one.example) for one in pair) for pair in batch]
            with self._model.compute.training(self._model.model):
                for rows in pack_by_length(lengths, self._config.batch_tokens):
                    self._add_gradient([batch[row] for row in rows], len(batch))
                torch.nn.utils.clip_grad_norm_(self._weights, 1.0)
                self._optimizer.step()
                self._optimizer.zero_grad(set_to_none=True)

    def pair_figures(self, groups: Sequence[list[Rollout]]) -> dict[str, float]:
        """Return how well phi tells the pairs of `groups` apart, on which it has not been trained yet.

        `implicit_accuracy`: share of pairs whose success has the higher sum of r; 1/2 for a tie.
        `implicit_loss`: mean of their losses, in nats; log 2 where phi is the policy that played. Both are
        NaN without a pair.
        """
        pairs = [pair for group in groups for pair in preference_pairs(group)]
        if not pairs:
            return dict.fromkeys(FIGURES, math.nan)
        rewards = self.reply_rewards([one for pair in pairs for one in pair])
        sums = torch.tensor([sum(row) for row in rewards])
        margins = sums[0::2] - sums[1::2]
        is_tie = margins.abs() < LEAST_DEVIATION
        preferred = torch.where(is_tie, 0.5, (margins > 0).float())
        losses = preference_loss(sums[0::2], sums[1::2], beta=1.0)  # r has BETA already
        return dict(zip(FIGURES, (float(preferred.mean()), float(losses.mean())), strict=True))

    def _add_gradient(self, pairs: Sequence[tuple[Rollout, Rollout]], total: int) -> None:
        rollouts = [one for pair in pairs for one in pair]
        scores = score_tokens(self._model, rollouts, temperature=self._config.temperature)
        old = torch.tensor([value for one in rollouts for value in one.logprobs]).to(scores.logprobs)
        parts = (scores.logprobs - old).split([one.token_count for one in rollouts])
        ratios = torch.stack([part.sum() for part in parts])
        (preference_loss(ratios[0::2], ratios[1::2], beta=BETA).sum() / total).backward()

    def reply_rewards(self, rollouts: Sequence[Rollout]) -> list[list[float]]:
        """Return r of each reply of each rollout: BETA times the sum of its tokens' log phi - log old."""
        rewards: list[list[float]] = [[]] * len(rollouts)
        for row, scores in score_without_gradients(
            self._model,
            rollouts,
            temperature=self._config.temperature,
            batch_tokens=self._config.batch_tokens,
        ):
            rollout = rollouts[row]
            gains = scores.logprobs.cpu() - torch.tensor(rollout.logprobs)
            rewards[row] = [BETA * float(part.sum()) for part in gains.split(rollout.reply_lengths)]
        return rewards

    def add_step_advantages(
        self, samples: Sequence[TrainingSample], negative_weight: float
    ) -> list[TrainingSample]:
        """Return the samples with ALPHA times the advantage of each reply added to its tokens.

        Args:
            negative_weight: factor of sums that are negative.
        """
        rewards = self.reply_rewards([sample.rollouts[0] for sample in samples])
        values = torch.tensor([value for row in rewards for value in row])
        mean, deviation = float(values.mean()), float(values.std(correction=0))
        scale = ALPHA / deviation if deviation >= LEAST_DEVIATION else 0.0
        changed = []
        for sample, row in zip(samples, rewards, strict=True):
            lengths = sample.rollouts[0].reply_lengths
            added = [scale * (value - mean) for value, n in zip(row, lengths, strict=True) for _ in range(n)]
            total = [
                weighted(a + b, negative_weight)
                for a, b in zip(sample.targets["advantage"], added, strict=True)
            ]
            changed.append(replace(sample, targets=sample.targets | {"advantage": total}))
        return changed

    def state_dict(self) -> dict[str, Any]:
        """Return phi and the moments of its optimiser."""
        return {"model": self._model.model.state_dict(), "optimizer": self._optimizer.state_dict()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue from `state`."""
        self._model.model.load_state_dict(state["model"])
        self._optimizer.load_state_dict(copy.deepcopy(state["optimizer"]))
