"""Proximal policy optimisation with a value head (Schulman et al. 2017, arXiv 1707.06347; GAE: 1506.02438).

    A_t = sum_l (discount gae_lambda)^l (r_t+l + discount V(s_t+l+1) - V(s_t+l))

    dreamgym retrain rl.algorithm=ppo rl.num_generations=1 rl.dream.tasks=256

The loss of a token is GRPO's (`grpo.py`). The loss of the value, at the first token of each reply, is with
R = A + V_old:

    1/2 max((V - R)^2, (V_old + clip(V - V_old, -VALUE_CLIP, VALUE_CLIP) - R)^2)

A step t is a reply of the agent, not a token, because the paper's sum runs over interactions. V is read at
the first token of the reply, and each token of the reply has the reply's advantage.

Deviations from common practice:
1. The value head is one linear layer on the policy's last hidden state, initially zero. Its error also trains
   the policy's weights, VALUE_WEIGHT times.
2. No value is bootstrapped at the step limit, because the task is to succeed within the limit.
3. Advantages are normalised to mean 0 and standard deviation 1 over all replies of an iteration. Then
   `idle_penalty` is subtracted from those of idle replies (`grpo.py`, 6).
4. If `num_generations` is 1, a task is played once. The curriculum then compares the returns of a cluster of
   tasks (Eq. 7): see `components/experience/tasks/task_clusters.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from components.config.algorithm_config import PPOConfig
from components.config.rl_config import RLConfig
from components.policy.policy import Policy
from components.policy.rl.algorithms.algorithm import LossInputs
from components.policy.rl.algorithms.grpo import per_token
from components.policy.rl.algorithms.policy_gradient import PolicyGradient
from components.policy.rl.log_probabilities import score_without_gradients
from components.policy.rl.training_sample import TrainingSample
from components.policy.rollout import Rollout

EPSILON = 1e-6
VALUE_WEIGHT = 0.5
"""Weight of the value head's squared error in the loss (TRL: `vf_coef`)."""
VALUE_CLIP = 0.2
"""Maximum change of a value; beyond it the gradient is zero (TRL: `cliprange_value`)."""


def generalised_advantages(
    rewards: Sequence[float], values: Sequence[float], *, discount: float, gae_lambda: float
) -> list[float]:
    """Return A_t of each step of one episode (GAE, see the module); no value follows the last step.

    Args:
        rewards: one per step.
        values: V before each step.
    """
    advantages = [0.0] * len(rewards)
    later_advantage = next_value = 0.0
    for step in reversed(range(len(rewards))):
        error = rewards[step] + discount * next_value - values[step]
        later_advantage = error + discount * gae_lambda * later_advantage
        advantages[step] = later_advantage
        next_value = values[step]
    return advantages


class PPO(PolicyGradient):
    """Proximal policy optimisation with a value head; see the module."""

    needs_hidden = True

    def __init__(self, config: RLConfig, options: PPOConfig, policy: Policy) -> None:
        super().__init__(options)
        self.config = config
        self.options = options
        self.figures = (*self.figures, "value_loss")
        self.head = torch.nn.Linear(policy.model.config.hidden_size, 1).to(policy.model.device)
        torch.nn.init.zeros_(self.head.weight)
        torch.nn.init.zeros_(self.head.bias)

    def training_samples(self, groups: Sequence[list[Rollout]], policy: Policy) -> list[TrainingSample]:
        """Return a sample for every rollout, with the advantage, value and return of each reply."""
        rollouts = [rollout for group in groups for rollout in group]
        if not rollouts:
            return []
        outcomes = [rollout.reward for rollout in rollouts]
        values = self._values(rollouts, policy)
        advantages = [
            self._advantages(len(row), outcome, row) for row, outcome in zip(values, outcomes, strict=True)
        ]
        scaled = _standardise(advantages)
        has_signal = len(set(outcomes)) > 1
        samples = []
        for row, rollout in enumerate(rollouts):
            returns = [a + v for a, v in zip(advantages[row], values[row], strict=True)]
            samples.append(self._training_sample(rollout, scaled[row], values[row], returns, has_signal))
        return samples

    def _advantages(self, steps: int, outcome: float, values: list[float]) -> list[float]:
        rewards = [0.0] * (steps - 1) + [outcome]
        return generalised_advantages(
            rewards, values, discount=self.options.discount, gae_lambda=self.options.gae_lambda
        )

    def _values(self, rollouts: Sequence[Rollout], policy: Policy) -> list[list[float]]:
        """Return V before each reply of each rollout, under the present policy."""
        values_of_rollouts: list[list[float]] = [[]] * len(rollouts)
        scores = score_without_gradients(
            policy,
            rollouts,
            temperature=self.config.temperature,
            batch_tokens=self.config.batch_tokens,
            with_hidden=True,
        )
        for row, score in scores:
            assert score.hidden is not None
            with torch.no_grad():
                hidden = score.hidden.to(self.head.weight.device).float()
                values = self.head(hidden)[:, 0].tolist()
            values_of_rollouts[row] = [values[place] for place in _reply_starts(rollouts[row])]
        return values_of_rollouts

    def _training_sample(
        self,
        rollout: Rollout,
        advantages: list[float],
        values: list[float],
        returns: list[float],
        has_signal: bool,
    ) -> TrainingSample:
        penalised = [
            value - self.options.idle_penalty * idle
            for value, idle in zip(advantages, rollout.idle, strict=True)
        ]
        reply_values = {
            "advantage": penalised,
            "value": values,
            "return": returns,
            "length": [float(length) for length in rollout.reply_lengths],
        }
        starts = set(_reply_starts(rollout))
        targets = {name: per_token(rollout, row) for name, row in reply_values.items()}
        targets["first"] = [float(place in starts) for place in range(rollout.token_count)]
        return TrainingSample((rollout,), targets, has_signal)

    def loss(self, inputs: LossInputs) -> tuple[Tensor, dict[str, Tensor]]:
        """Return the clipped loss, plus the clipped value error and `beta` times the KL divergence."""
        targets = inputs.targets
        losses, figures = self.surrogate(inputs)
        assert inputs.hidden is not None
        values = self.head(inputs.hidden.float())[:, 0]
        clipped = targets["value"] + (values - targets["value"]).clamp(-VALUE_CLIP, VALUE_CLIP)
        larger = torch.maximum((values - targets["return"]) ** 2, (clipped - targets["return"]) ** 2)
        errors = 0.5 * larger * targets["first"]
        # A reply's value is at its first token, which has the weight of all tokens of the reply.
        value_loss = (errors * inputs.token_weights * targets["length"]).sum()
        figures["value_loss"] = value_loss.detach().double()
        return (losses * inputs.token_weights).sum() + VALUE_WEIGHT * value_loss, figures

    def parameters(self) -> list[torch.nn.Parameter]:
        """Return the weights of the value head."""
        return list(self.head.parameters())

    def own_learning_rate(self, learning_rate: float) -> float:
        """Return the learning rate of the value head, in a constant ratio to the policy's."""
        return learning_rate * self.options.value_learning_rate / self.config.learning_rate

    def state_dict(self) -> dict[str, Any]:
        """Return the value head."""
        return {"head": self.head.state_dict()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue from `state`."""
        self.head.load_state_dict(state["head"])


def _reply_starts(rollout: Rollout) -> list[int]:
    """Return the index of each reply's first token among the written tokens."""
    return [sum(rollout.reply_lengths[:step]) for step in range(len(rollout.reply_lengths))]


def _standardise(rows: Sequence[list[float]]) -> list[list[float]]:
    values = [value for row in rows for value in row]
    mean = sum(values) / len(values)
    deviation = (sum((value - mean) ** 2 for value in values) / len(values)) ** 0.5
    return [[(value - mean) / (deviation + EPSILON) for value in row] for row in rows]
