"""Direct preference optimisation on whole episodes (Rafailov et al. 2023, arXiv 2305.18290, Eq. 7), offline,
semi-online or online.

    -log sigmoid(beta (log pi(w) - log ref(w) - log pi(l) + log ref(l)))

    dreamgym retrain synthetic_rl.algorithm=dpo synthetic_rl.dpo.sync_every=4

w is a success and l a failure of the same task; log pi(w) sums over the tokens that the agent wrote. As in
"Bridging Offline and Online Reinforcement Learning" (arXiv 2506.21495) the weights that play become those
that are trained every `sync_every` iterations (1: online,
0: never, so that all is learnt from what the first policy did: offline), and the reference moves with them if
`sync_reference` says so.

Deviations:
1. Each success is paired with one failure, in the order played, so that no episode of the rarer kind is left
   out and the more frequent
   kind repeats nothing; tasks without both are left out, as in the paper.
2. Log-probabilities are those at the sampling temperature.
3. What is counted between synchronisations are iterations of `epochs` times `updates` optimiser steps, where
   the paper counts steps: it is
   online in its sense with both at 1.
4. Offline means that the first policy plays all episodes, a fresh set in each iteration, not that a fixed set
   of logs is read. The success
   that is logged is then that policy's: what training does to the one that learns shows in `margin` and in
   the evaluation alone.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from components.config.training_config import RLConfig
from components.policy.policy import Policy
from components.policy.rl.algorithm import Lesson, Written
from components.policy.rl.reference import Reference
from components.policy.rollout import Rollout


class DPO:
    """See the module."""

    wants_hidden = False
    anew = False
    figures: tuple[str, ...] = ("preferred", "margin")

    def __init__(self, config: RLConfig) -> None:
        self.config = config
        self._player: Policy | None = None
        self._reference: Reference | None = None
        self._waiting: dict[str, Any] | None = None

    def acting(self, policy: Policy, iteration: int) -> Policy:
        """The policy where it is synchronised, else a copy of it as it was then."""
        own = self.config.dpo
        if self._player is None:
            self._begin(policy)
        assert self._player is not None and self._reference is not None
        if own.sync_every and iteration % own.sync_every == 0:
            _copy(policy.model, self._player.model)
            if own.sync_reference:
                self._reference.follow(policy)
            return policy
        return self._player

    def _begin(self, policy: Policy) -> None:
        """Copies of the policy to play with and to hold on to, as they stand or as they were saved."""
        self._player = policy.twin()
        self._reference = Reference(policy, self.config.temperature, self.config.batch_tokens)
        if self._waiting:
            self._player.model.load_state_dict(self._waiting["player"])
            self._reference.load_state_dict(self._waiting["reference"])
            self._waiting = None

    def lessons(self, groups: Sequence[list[Rollout]], policy: Policy) -> list[Lesson]:
        """Pairs of a success and a failure, with the reference's log-probabilities."""
        pairs = [pair for group in groups for pair in paired(group)]
        if not pairs:
            return []
        assert self._reference is not None
        known = self._reference.logprobs([rollout for pair in pairs for rollout in pair])
        return [Lesson(pair, {"reference": known[2 * i] + known[2 * i + 1]}) for i, pair in enumerate(pairs)]

    def shares(self, lessons: Sequence[Lesson]) -> list[float]:
        """All pairs count alike."""
        return [1 / len(lessons)] * len(lessons)

    def loss(self, written: Written) -> tuple[Tensor, dict[str, float]]:
        """The mean over pairs."""
        ratios = torch.stack(
            [part.sum() for part in (written.logprobs - written.targets["reference"]).split(written.episodes)]
        )
        shares = torch.stack([part[0] for part in written.shares.split(written.episodes)])[0::2]
        each = preference_loss(ratios[0::2], ratios[1::2], beta=self.config.dpo.beta)
        margins = (ratios[0::2] - ratios[1::2]).detach()
        figures = {
            "preferred": (shares * (margins > 0)).sum().item(),
            "margin": (shares * margins).sum().item(),
        }
        return (each * shares).sum(), figures

    def parameters(self) -> list[torch.nn.Parameter]:
        """None."""
        return []

    def state_dict(self) -> dict[str, Any]:
        """The weights that play and those of the reference."""
        if self._player is None or self._reference is None:
            return {}
        return {"player": self._player.model.state_dict(), "reference": self._reference.state_dict()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from `state`."""
        self._waiting = copy.copy(state) or None


def paired(group: Sequence[Rollout]) -> list[tuple[Rollout, Rollout]]:
    """(success, failure) of one task, as many as the rarer of the two; none without both."""
    won, lost = [r for r in group if r.reward > 0.5], [r for r in group if r.reward <= 0.5]
    return list(zip(won, lost, strict=False))


def preference_loss(chosen: Tensor, rejected: Tensor, *, beta: float) -> Tensor:
    """The loss of each pair, from the sums of log pi - log ref over its episodes; all tensors are [pairs]."""
    return -torch.nn.functional.logsigmoid(beta * (chosen - rejected))


def _copy(source: torch.nn.Module, target: torch.nn.Module) -> None:
    target.load_state_dict(source.state_dict())
