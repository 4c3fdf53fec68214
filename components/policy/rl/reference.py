"""The reference policy: the weights that the trained policy is compared with.

With LoRA only the adapters differ, so no second model is kept: the reference's adapters take the place of the
trained ones while it scores. Without LoRA it is a frozen copy.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from peft import PeftModel
from torch import Tensor

from components.policy.policy import Policy
from components.policy.rl.log_probabilities import score_without_gradients
from components.policy.rollout import Rollout


class Reference:
    """Scores rollouts with the weights that `policy` had at the start, or at the last `copy_weights`."""

    def __init__(self, policy: Policy, temperature: float, batch_tokens: int) -> None:
        self._has_adapters = isinstance(policy.model, PeftModel)
        self._policy = policy.with_same_model() if self._has_adapters else policy.frozen_copy()
        self._adapters = _copied(_trained_weights(policy)) if self._has_adapters else {}
        self._temperature = temperature
        self._batch_tokens = batch_tokens

    def logprobs(self, rollouts: Sequence[Rollout]) -> list[list[float]]:
        """Return per rollout its tokens' log-probabilities, in nats at the sampling temperature."""
        logprobs: list[list[float]] = [[]] * len(rollouts)
        with self._in_place():
            for row, scores in score_without_gradients(
                self._policy, rollouts, temperature=self._temperature, batch_tokens=self._batch_tokens
            ):
                logprobs[row] = scores.logprobs.tolist()
        return logprobs

    def copy_weights(self, policy: Policy) -> None:
        """Take the present weights of `policy`."""
        if self._has_adapters:
            self._adapters = _copied(_trained_weights(policy))
        else:
            self._policy.model.load_state_dict(policy.model.state_dict())

    def state_dict(self) -> dict[str, Any]:
        """Return the weights; with LoRA those of the adapters."""
        weights: dict[str, Any] = self._adapters if self._has_adapters else self._policy.model.state_dict()
        return weights

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Take the weights of `state`."""
        if self._has_adapters:
            self._adapters = dict(state)
        else:
            self._policy.model.load_state_dict(state)

    @contextmanager
    def _in_place(self) -> Iterator[None]:
        """Put the reference's adapters into the model within the block; without LoRA nothing changes."""
        trained = _trained_weights(self._policy) if self._has_adapters else {}
        before = _copied(trained)
        _overwrite(trained, self._adapters)
        try:
            yield
        finally:
            _overwrite(trained, before)


def _trained_weights(policy: Policy) -> dict[str, Tensor]:
    return {name: weight for name, weight in policy.model.named_parameters() if weight.requires_grad}


def _copied(weights: dict[str, Tensor]) -> dict[str, Tensor]:
    return {name: weight.detach().clone() for name, weight in weights.items()}


def _overwrite(weights: dict[str, Tensor], values: dict[str, Tensor]) -> None:
    with torch.no_grad():
        for name, weight in weights.items():
            weight.copy_(values[name])
