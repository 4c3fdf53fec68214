"""A training sample: one rollout or a pair of rollouts, with what an algorithm's loss needs of its tokens."""

from __future__ import annotations

from dataclasses import dataclass, field

from components.policy.rollout import Rollout


@dataclass(frozen=True)
class TrainingSample:
    """One rollout, or a pair of rollouts, and what the loss needs of the n tokens that the policy wrote.

    Args:
        rollouts: one, or two that are compared with each other.
        targets: name -> n values, in the order of the tokens, one rollout after the other.
        has_signal: False if all advantages come from the idle penalty, because all returns are equal and no
            model (iStar's) tells replies apart.
    """

    rollouts: tuple[Rollout, ...]
    targets: dict[str, list[float]] = field(default_factory=dict)
    has_signal: bool = True

    @property
    def token_count(self) -> int:
        """Number of tokens that the policy wrote."""
        return sum(rollout.token_count for rollout in self.rollouts)

    @property
    def total_length(self) -> int:
        """Number of tokens of all rollouts, read and written."""
        return sum(len(rollout.example) for rollout in self.rollouts)

    @property
    def length(self) -> int:
        """Number of tokens of the longest rollout, read and written."""
        return max(len(rollout.example) for rollout in self.rollouts)
