"""What an episode was worth: its outcome, or HERO's hybrid of the outcome and how far it came (arXiv
2510.07242).

    r_hat = -alpha + 2 alpha z             of a failure (Eq. 3), z its score between the lowest and the
    highest failure of its group r_hat = (1 - beta) + 2 beta z          of a success, likewise w(sigma) =
    w_min + (w_max - w_min) / (1 + exp(-k (sigma - sigma_mean)))      (Eq. 5), sigma the deviation of the
    group's scores

    dreamgym retrain synthetic_rl.reward=hero

Differs from the paper: the score is no reward model's but the adapter's `progress`, the share of the goal
that is reached. w is put on the advantages, not on the rewards: divided by a group's deviation a factor on
its rewards cancels (so does alpha where all failed, and beta where all won, with `grpo.normalise`). A stratum
of one has z = 1/2, so that a lone success is worth 1 and not the lower end of its band. sigma_mean is a
running mean with decay 0.9, as in the verl port.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from components.config.training_config import HeroConfig
from components.policy.rollout import Rollout
from components.records import Trajectory

EPSILON = 1e-6
DECAY = 0.9
WEIGHTS = {"appendix": (0.4, 3.0, 6.0), "text": (0.5, 2.0, 5.0)}
"""(w_min, w_max, k): the paper's two places disagree."""

Progress = Callable[[Trajectory], float]


class Rewards:
    """The outcome alone: 1.0 of a success, else 0.0."""

    def of(self, group: Sequence[Rollout]) -> tuple[list[float], float]:
        """The return of each rollout of a group, and the weight of the group's advantages."""
        return [rollout.reward for rollout in group], 1.0

    def state_dict(self) -> dict[str, Any]:
        """No state."""
        return {}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """No state."""


class HybridRewards(Rewards):
    """HERO's; `progress(episode)` is between 0 and 1."""

    def __init__(self, config: HeroConfig, progress: Progress) -> None:
        self.config, self._progress = config, progress
        self._usual: float | None = None

    def of(self, group: Sequence[Rollout]) -> tuple[list[float], float]:
        """See the module; the running mean takes in the group after its weight is known."""
        scores, outcomes = (
            [self._progress(rollout.trajectory) for rollout in group],
            [rollout.reward for rollout in group],
        )
        deviation = _deviation(scores)
        weight = self._weight(deviation)
        self._usual = deviation if self._usual is None else DECAY * self._usual + (1 - DECAY) * deviation
        return stratified(outcomes, scores, alpha=self.config.alpha, beta=self.config.beta), weight

    def _weight(self, deviation: float) -> float:
        if self.config.weighting == "off" or self._usual is None:
            return 1.0
        low, high, steepness = WEIGHTS[self.config.weighting]
        return low + (high - low) / (1 + math.exp(-steepness * (deviation - self._usual)))

    def state_dict(self) -> dict[str, Any]:
        """The running mean."""
        return {"usual": self._usual}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from `state`."""
        self._usual = state["usual"]


def stratified(
    outcomes: Sequence[float], scores: Sequence[float], *, alpha: float, beta: float
) -> list[float]:
    """r_hat of each rollout of one group (Eq. 3): outcomes are 0 or 1, scores any real numbers."""
    rewards = [0.0] * len(outcomes)
    for won, centre, width in ((False, 0.0, alpha), (True, 1.0, beta)):
        rows = [row for row, outcome in enumerate(outcomes) if (outcome > 0.5) == won]
        low, high = (
            (min(scores[row] for row in rows), max(scores[row] for row in rows)) if rows else (0.0, 0.0)
        )
        for row in rows:
            place = (scores[row] - low) / (high - low + EPSILON) if high > low else 0.5
            rewards[row] = centre + width * (2 * place - 1)
    return rewards


def _deviation(values: Sequence[float]) -> float:
    mean = sum(values) / len(values)
    return math.sqrt(sum((value - mean) ** 2 for value in values) / len(values))
