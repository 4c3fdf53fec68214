"""What an algorithm of the RL loop is: it makes lessons of groups of rollouts, and a loss of what the policy
wrote in them.

All else (tasks, rollouts, batches, optimiser, checkpoints, figures) is the loop's. An algorithm that plays
with other weights than those it trains says so in `acting`; what it carries from one iteration to the next is
in its `state_dict`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import torch
from torch import Tensor

from components.policy.policy import Policy
from components.policy.rollout import Rollout


@dataclass(frozen=True)
class Lesson:
    """Episodes that only teach together (one, or a pair), and what the loss must know of the n tokens written
    in them.

    `targets` has lists of n values, in the order of the tokens, the episodes one after the other. `telling`:
    something here was worth more than something else; else all that is taught is to leave out what changes
    nothing.
    """

    rollouts: tuple[Rollout, ...]
    targets: dict[str, list[float]] = field(default_factory=dict)
    telling: bool = True

    @property
    def written(self) -> int:
        """Tokens that the policy wrote."""
        return sum(rollout.written for rollout in self.rollouts)

    @property
    def length(self) -> int:
        """Tokens of its longest episode."""
        return max(len(rollout.example) for rollout in self.rollouts)


@dataclass
class Written:
    """The n tokens that the policy wrote in some lessons, as it sees them now.

    `logprobs` fp32 [n] in nats, with gradients; `old` fp32 [n], the sampler's; `hidden` [n, H], the last
    hidden state that each token was predicted from, if the algorithm wants it; `targets` fp32 [n] each;
    `shares` fp32 [n], what each token's lesson counts in the update's mean; `episodes` the number of tokens
    of each episode; `count` the tokens of the whole update, of which these are a part.
    """

    logprobs: Tensor
    old: Tensor
    hidden: Tensor | None
    targets: dict[str, Tensor]
    shares: Tensor
    episodes: list[int]
    count: int


class Algorithm(Protocol):
    """One way to learn from rollouts."""

    wants_hidden: bool
    anew: bool
    """Whether each iteration trains the first policy anew, on all that its lessons hold, in place of going on
    with the last one.
    """
    figures: tuple[str, ...]
    """Names of what its loss tells beside the loss."""

    def acting(self, policy: Policy, iteration: int) -> Policy:
        """Who plays the rollouts of an iteration; `policy` itself for what is learnt on-policy."""
        ...

    def lessons(self, groups: Sequence[list[Rollout]], policy: Policy) -> list[Lesson]:
        """What can be learnt from groups of rollouts of one task each; groups may be empty."""
        ...

    def shares(self, lessons: Sequence[Lesson]) -> list[float]:
        """What each token of each of an update's lessons counts in the mean, one value a lesson."""
        ...

    def loss(self, written: Written) -> tuple[Tensor, dict[str, float]]:
        """The part of these lessons in the update's loss, and in its figures by name."""
        ...

    def parameters(self) -> list[torch.nn.Parameter]:
        """Weights of its own that are trained too."""
        ...

    def state_dict(self) -> dict[str, Any]:
        """What must survive a crash: plain values and tensors."""
        ...

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from `state`."""
        ...
