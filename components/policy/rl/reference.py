"""The policy as it was at some moment, to measure by how far the trained one has moved."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from components.policy.policy import Policy
from components.policy.rl.log_probabilities import score_without_gradients
from components.policy.rollout import Rollout


class Reference:
    """A frozen copy of a policy."""

    def __init__(self, policy: Policy, temperature: float, batch_tokens: int) -> None:
        self._policy, self._temperature, self._batch_tokens = policy.frozen_copy(), temperature, batch_tokens

    def logprobs(self, rollouts: Sequence[Rollout]) -> list[list[float]]:
        """Of the tokens written in each rollout, in nats, at the temperature of sampling."""
        found: list[list[float]] = [[]] * len(rollouts)
        for row, scores in score_without_gradients(
            self._policy, rollouts, temperature=self._temperature, batch_tokens=self._batch_tokens
        ):
            found[row] = scores.logprobs.tolist()
        return found

    def follow(self, policy: Policy) -> None:
        """Become what `policy` is now."""
        self._policy.model.load_state_dict(policy.model.state_dict())

    def state_dict(self) -> dict[str, Any]:
        """Its weights."""
        weights: dict[str, Any] = self._policy.model.state_dict()
        return weights

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Become what was saved."""
        self._policy.model.load_state_dict(state)
