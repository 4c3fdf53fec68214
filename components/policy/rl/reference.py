"""The reference policy: a frozen copy, which the trained policy is compared with."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from components.policy.policy import Policy
from components.policy.rl.log_probabilities import score_without_gradients
from components.policy.rollout import Rollout


class Reference:
    """A frozen copy of a policy that scores rollouts."""

    def __init__(self, policy: Policy, temperature: float, batch_tokens: int) -> None:
        self._policy = policy.frozen_copy()
        self._temperature = temperature
        self._batch_tokens = batch_tokens

    def logprobs(self, rollouts: Sequence[Rollout]) -> list[list[float]]:
        """Return per rollout its tokens' log-probabilities, in nats at the sampling temperature."""
        logprobs: list[list[float]] = [[]] * len(rollouts)
        for row, scores in score_without_gradients(
            self._policy, rollouts, temperature=self._temperature, batch_tokens=self._batch_tokens
        ):
            logprobs[row] = scores.logprobs.tolist()
        return logprobs

    def copy_weights(self, policy: Policy) -> None:
        """Take the present weights of `policy`."""
        self._policy.model.load_state_dict(policy.model.state_dict())

    def state_dict(self) -> dict[str, Any]:
        """Return the weights."""
        weights: dict[str, Any] = self._policy.model.state_dict()
        return weights

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Take the weights of `state`."""
        self._policy.model.load_state_dict(state)
