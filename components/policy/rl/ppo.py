"""Proximal policy optimisation with a value head (Schulman et al. 2017, arXiv 1707.06347; GAE: arXiv
1506.02438).

    A_t = sum_l (discount gae_lambda)^l (r_t+l + discount V(s_t+l+1) - V(s_t+l))

    dreamgym retrain synthetic_rl.algorithm=ppo synthetic_rl.group=1 synthetic_rl.tasks=256

The policy's loss of a token is GRPO's (`grpo.py`); the value's, at the first token of each reply, with R = A
+ V_old the value it turned out to have: 1/2 max((V - R)^2, (V_old + clip(V - V_old, -value_clip, value_clip)
- R)^2).

The step t is a reply of the agent, not a token, as the paper's sum runs over interactions: V is read where
the reply begins, and each token of the reply has its advantage.

Deviations from common practice:
1. The value head is one linear layer on the policy's own last hidden state, zero at first; its error trains
   the policy's weights too,
   `value_weight` times.
2. An episode that reaches the step limit ends there: the task is to succeed within it, so nothing is hoped
   for behind it.
3. Advantages are brought to mean 0 and deviation 1 over all replies of an iteration; then idle ones lose
   `idle_penalty` (`grpo.py`, 6).
4. A task is played once where `group` is 1, so the curriculum's group (Eq. 7) is a cluster of tasks: see
   `task_clusters.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from components.config.training_config import RLConfig
from components.policy.policy import Policy
from components.policy.rl.algorithm import Lesson, Written
from components.policy.rl.grpo import token_values
from components.policy.rl.log_probabilities import scored_still
from components.policy.rl.rewards import Rewards
from components.policy.rl.surrogate import mean_shares, surrogate
from components.policy.rollout import Rollout

EPSILON = 1e-6


def generalised_advantages(
    rewards: Sequence[float], values: Sequence[float], *, discount: float, gae_lambda: float
) -> list[float]:
    """A_t of the steps of one episode that ends behind the last: see the module."""
    advantages, later, following = [0.0] * len(rewards), 0.0, 0.0
    for step in reversed(range(len(rewards))):
        surprise = rewards[step] + discount * following - values[step]
        later = surprise + discount * gae_lambda * later
        advantages[step], following = later, values[step]
    return advantages


class PPO:
    """See the module."""

    wants_hidden = True
    anew = False

    def __init__(
        self, config: RLConfig, rewards: Rewards, hidden: int, device: torch.device | str = "cpu"
    ) -> None:
        """Args: hidden: width of the policy's last hidden state."""
        self.config, self.rewards = config, rewards
        self.figures: tuple[str, ...] = (
            "clip_share",
            "approx_kl",
            *(["kl"] if config.kl else []),
            "value_loss",
        )
        self.head = torch.nn.Linear(hidden, 1).to(device)
        torch.nn.init.zeros_(self.head.weight)
        torch.nn.init.zeros_(self.head.bias)

    def acting(self, policy: Policy, iteration: int) -> Policy:
        """The policy itself."""
        return policy

    def lessons(self, groups: Sequence[list[Rollout]], policy: Policy) -> list[Lesson]:
        """Every rollout, with advantages and the value that each reply turned out to have."""
        rollouts, outcomes, weights = [], [], []
        for group in filter(None, groups):
            returns, weight = self.rewards.of(group)
            rollouts += group
            outcomes += returns
            weights += [weight] * len(group)
        if not rollouts:
            return []
        values = self._values(rollouts, policy)
        advantages = [
            self._advantages(len(row), outcome, row) for row, outcome in zip(values, outcomes, strict=True)
        ]
        scaled = _standardised(advantages)
        telling = len(set(outcomes)) > 1
        return [
            self._lesson(
                rollout,
                [weight * value for value in row],
                old,
                [a + v for a, v in zip(own, old, strict=True)],
                telling,
            )
            for rollout, weight, row, old, own in zip(
                rollouts, weights, scaled, values, advantages, strict=True
            )
        ]

    def _advantages(self, steps: int, outcome: float, values: list[float]) -> list[float]:
        rewards = [0.0] * (steps - 1) + [outcome]
        return generalised_advantages(
            rewards, values, discount=self.config.discount, gae_lambda=self.config.ppo.gae_lambda
        )

    def _values(self, rollouts: Sequence[Rollout], policy: Policy) -> list[list[float]]:
        """V before each reply, as the policy stands."""
        found: list[list[float]] = [[]] * len(rollouts)
        scores = scored_still(
            policy,
            rollouts,
            temperature=self.config.temperature,
            batch_tokens=self.config.batch_tokens,
            with_hidden=True,
        )
        for row, score in scores:
            assert score.hidden is not None
            with torch.no_grad():
                values = self.head(score.hidden.float())[:, 0].tolist()
            starts = _starts(rollouts[row])
            found[row] = [values[place] for place in starts]
        return found

    def _lesson(
        self,
        rollout: Rollout,
        advantages: list[float],
        values: list[float],
        returns: list[float],
        telling: bool,
    ) -> Lesson:
        punished = [
            value - self.config.idle_penalty * idle
            for value, idle in zip(advantages, rollout.idle, strict=True)
        ]
        rows = {
            "advantage": punished,
            "value": values,
            "return": returns,
            "length": [float(length) for length in rollout.replies],
        }
        starts = set(_starts(rollout))
        first = [float(place in starts) for place in range(rollout.written)]
        return Lesson(
            (rollout,),
            {name: token_values(rollout, row) for name, row in rows.items()} | {"first": first},
            telling,
        )

    def shares(self, lessons: Sequence[Lesson]) -> list[float]:
        """See `surrogate.mean_shares`."""
        return mean_shares([lesson.written for lesson in lessons], self.config.loss_mean)

    def loss(self, written: Written) -> tuple[Tensor, dict[str, float]]:
        """The clipped loss, the clipped error of the values, and `kl` times the distance from the
        reference.
        """
        targets, own = written.targets, self.config.ppo
        each, figures = surrogate(written, self.config)
        assert written.hidden is not None
        values = self.head(written.hidden.float())[:, 0]
        near = targets["value"] + (values - targets["value"]).clamp(-own.value_clip, own.value_clip)
        error = (
            0.5
            * torch.maximum((values - targets["return"]) ** 2, (near - targets["return"]) ** 2)
            * targets["first"]
        )
        # A reply's value stands at its first token, and counts there for all of the reply's tokens.
        value_loss = (error * written.shares * targets["length"]).sum()
        figures["value_loss"] = value_loss.item()
        return (each * written.shares).sum() + own.value_weight * value_loss, figures

    def parameters(self) -> list[torch.nn.Parameter]:
        """The value head's."""
        return list(self.head.parameters())

    def state_dict(self) -> dict[str, Any]:
        """The value head and the rewards' state."""
        return {"head": self.head.state_dict(), "rewards": self.rewards.state_dict()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from `state`."""
        self.head.load_state_dict(state["head"])
        self.rewards.load_state_dict(state["rewards"])


def _starts(rollout: Rollout) -> list[int]:
    """Where each reply begins among the tokens that were written."""
    return [sum(rollout.replies[:step]) for step in range(len(rollout.replies))]


def _standardised(rows: Sequence[list[float]]) -> list[list[float]]:
    values = [value for row in rows for value in row]
    mean = sum(values) / len(values)
    deviation = (sum((value - mean) ** 2 for value in values) / len(values)) ** 0.5
    return [[(value - mean) / (deviation + EPSILON) for value in row] for row in rows]
