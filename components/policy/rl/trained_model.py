"""What a learner trains: the policy's own model, or a copy of it that is divided among the ranks (FSDP2).

A divided copy lives as long as its learner. Each rank holds a part of the weights, gradients and optimiser
states on its device. The policy's model stays whole: it plays, and takes the trained weights after each
update. During an update it is in main memory, and on ranks that do not play it stays there.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar

import torch
from torch import Tensor

from components.language.freed_memory import return_if_grown
from components.language.training import parallel
from components.language.training.examples import Batch
from components.language.training.sharding import (
    clip_gradients,
    divide,
    divided_like,
    is_requested,
    scorer_of,
    whole,
)
from components.language.training.token_scores import TokenScores
from components.policy.policy import Policy
from components.policy.rl.log_probabilities import pack_by_length, rollout_batch, split_scores
from components.policy.rollout import Rollout

Item = TypeVar("Item")
CLIP_NORM = 1.0
"""Largest norm of the gradient of one step."""


class TrainedModel:
    """The model of `policy` as a learner trains it.

    Attributes:
        module: what computes; the policy's model until `divide`.
        is_divided: whether it is divided among the ranks.
    """

    def __init__(self, policy: Policy, *, plays_beside: bool = False) -> None:
        """Args: plays_beside: the whole model is needed on its device between updates, whatever plays."""
        self._policy = policy
        self._plays_beside = plays_beside
        self._copy: Any = None
        self._device = policy.model.device

    @property
    def module(self) -> Any:
        """What computes: the policy's own model, or the divided copy."""
        return self._policy.model if self._copy is None else self._copy

    @property
    def is_divided(self) -> bool:
        """Whether it is divided among the ranks."""
        return self._copy is not None

    @property
    def device(self) -> torch.device:
        """Where it computes."""
        return self._device

    def divide(self) -> None:
        """Divide the model among the ranks, if the launch asks for it; every rank must call this."""
        if is_requested():
            self._policy.model.to("cpu")
            self._copy = divide(self._policy.model, self._device)
            self._return_to_device()

    def weights(self) -> dict[str, torch.nn.Parameter]:
        """Return the weights that the optimiser steps, by name; divided ones hold this rank's part."""
        return {name: weight for name, weight in self.module.named_parameters() if weight.requires_grad}

    def score(
        self, batch: Batch, *, temperature: float = 1.0, with_entropy: bool = False, with_hidden: bool = False
    ) -> TokenScores:
        """Return the scores of the predicted tokens of `batch` (`token_logprobs`), with gradients."""
        logprobs, entropies, hidden = scorer_of(self.module)(batch, temperature, with_entropy, with_hidden)
        return TokenScores(logprobs, batch.rows, batch.columns, entropies, hidden)

    def score_rollouts(
        self, rollouts: Sequence[Rollout], temperature: float, batch_tokens: int, with_hidden: bool
    ) -> list[tuple[int, TokenScores]]:
        """Return (index, scores) of each rollout, without gradients; every rank must call this.

        Each rank computes a part; the scores of all are in main memory.
        """
        scored: list[tuple[int, TokenScores]] = []
        for rows, counts in self.shares(pack_by_length([len(r.example) for r in rollouts], batch_tokens)):
            own = [rollouts[row] for row in rows]
            batch = rollout_batch(self._policy, own, self.device)
            with torch.no_grad(), self._policy.compute.forward():
                scores = self.score(batch, temperature=temperature, with_hidden=with_hidden)
            if counts:
                scored += zip(rows, map(_in_main_memory, split_scores(scores, own)), strict=True)
            return_if_grown()
        if self.is_divided:  # a pass without gradients leaves some weights whole
            scorer_of(self.module).reshard()  # type: ignore[operator]
        return parallel.gather(scored)

    def shares(self, items: Sequence[Item]) -> list[tuple[Item, bool]]:
        """Return this rank's part of `items`, each with whether it counts.

        Where weights are divided, a rank with fewer items gets the first one once more, which does not count:
        all ranks must compute, since each needs the weights of the others.
        """
        own = [(item, True) for item in parallel.share(items)]
        if self.is_divided and items:
            own += [(items[0], False)] * (math.ceil(len(items) / parallel.size()) - len(own))
        return own

    def backward(self, loss: Tensor, counts: bool = True) -> None:
        """Add the gradient of this rank's part of a loss; of one that does not count, zero.

        FSDP2 averages gradients over the ranks; the step needs their sum.
        """
        factor = float(counts) * (parallel.size() if self.is_divided else 1)
        (loss if factor == 1 else factor * loss).backward()

    def finish_gradients(self, own_weights: Sequence[torch.nn.Parameter]) -> float:
        """Sum the gradients over the ranks, limit their norm to `CLIP_NORM`, and return the norm before.

        Args:
            own_weights: whole weights that are trained too, such as a value head.
        """
        weights = list(self.weights().values())
        parallel.sum_gradients(own_weights if self.is_divided else [*weights, *own_weights])
        for weight in own_weights if self.is_divided else ():
            assert weight.grad is not None
            weight.grad /= parallel.size()
        return clip_gradients([*weights, *own_weights], CLIP_NORM)

    @contextmanager
    def update(self) -> Iterator[None]:
        """Within the block the whole model is in main memory; at its end it has the trained weights.

        Without division nothing happens: it is the model that is trained.
        """
        if not self.is_divided:
            yield
            return
        self._policy.model.to("cpu")
        yield
        with torch.no_grad():
            for own, trained in zip(self._policy.model.parameters(), self._copy.parameters(), strict=True):
                if own.requires_grad:
                    own.copy_(whole(trained))
        self._return_to_device()

    def take_weights(self) -> None:
        """Give the divided copy the present weights of the whole model."""
        if self.is_divided:
            with torch.no_grad():
                for own, trained in zip(
                    self._policy.model.parameters(), self._copy.parameters(), strict=True
                ):
                    if own.requires_grad:
                        trained.copy_(divided_like(trained, own.detach()))

    def _return_to_device(self) -> None:
        """Move the whole model back to its device, if this rank plays or scores with it there."""
        is_used = self._plays_beside or not self._policy.engine_name.startswith("vllm")
        if is_used and not parallel.is_worker():
            self._policy.model.to(self._device)


def _in_main_memory(scores: TokenScores) -> TokenScores:
    """Return copies: a part of a batch would be pickled with the whole batch."""

    def copied(tensor: Tensor) -> Tensor:
        return tensor.to("cpu", copy=True)

    hidden = None if scores.hidden is None else copied(scores.hidden)
    return TokenScores(copied(scores.logprobs), copied(scores.rows), copied(scores.columns), None, hidden)
