"""The reward of an episode: its outcome, or HERO's hybrid of outcome and progress (arXiv 2510.07242).

    r_hat = -ALPHA + 2 ALPHA z              of a failure (Eq. 3); z is its score, scaled to 0 for the lowest
    and
                                            1 for the highest failure of its group
    r_hat = (1 - BETA) + 2 BETA z           of a success, likewise
    w(sigma) = w_min + (w_max - w_min) / (1 + exp(-k (sigma - sigma_mean)))    weight of a group (Eq. 5);
    sigma
                                            is the standard deviation of its scores

    dreamgym retrain rl.algorithm.reward=hero

Deviations from the paper: the score is not a reward model's but the adapter's `progress`, the share of the
goal that is reached. w multiplies the advantages, not the rewards: divided by a group's standard deviation, a
factor on its rewards cancels (so does ALPHA where all failed, and BETA where all succeeded, with
`scale_rewards`). A stratum of one has z = 1/2, so that a single success is worth 1 and not the lower end of
its band. sigma_mean is a running mean with decay 0.9, as in the verl port.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from components.policy.rollout import Rollout
from components.records import Trajectory

EPSILON = 1e-6
DECAY = 0.9
ALPHA = BETA = 0.05
"""Half-widths of the bands: failures lie in [-ALPHA, ALPHA], successes in [1 - BETA, 1 + BETA]."""
MIN_WEIGHT, MAX_WEIGHT, STEEPNESS = 0.4, 3.0, 6.0
"""w_min, w_max and k of the paper's appendix; its text has 0.5, 2 and 5."""

Progress = Callable[[Trajectory], float]


class Rewards:
    """The outcome alone: 1.0 for a success, else 0.0."""

    def returns(self, group: Sequence[Rollout]) -> tuple[list[float], float]:
        """The return of each rollout of a group, and the weight of the group's advantages."""
        return [rollout.reward for rollout in group], 1.0

    def state_dict(self) -> dict[str, Any]:
        """No state."""
        return {}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """No state."""


class HybridRewards(Rewards):
    """HERO's reward; `progress(episode)` is between 0 and 1."""

    def __init__(self, progress: Progress) -> None:
        self._progress = progress
        self._mean_deviation: float | None = None

    def returns(self, group: Sequence[Rollout]) -> tuple[list[float], float]:
        """See the module. The running mean takes in the group after its weight is computed."""
        scores = [self._progress(rollout.trajectory) for rollout in group]
        outcomes = [rollout.reward for rollout in group]
        deviation = _deviation(scores)
        weight = self._weight(deviation)
        if self._mean_deviation is None:
            self._mean_deviation = deviation
        else:
            self._mean_deviation = DECAY * self._mean_deviation + (1 - DECAY) * deviation
        return stratified_rewards(outcomes, scores, alpha=ALPHA, beta=BETA), weight

    def _weight(self, deviation: float) -> float:
        if self._mean_deviation is None:
            return 1.0
        excess = deviation - self._mean_deviation
        return MIN_WEIGHT + (MAX_WEIGHT - MIN_WEIGHT) / (1 + math.exp(-STEEPNESS * excess))

    def state_dict(self) -> dict[str, Any]:
        """The running mean."""
        return {"mean_deviation": self._mean_deviation}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue from `state`."""
        self._mean_deviation = state["mean_deviation"]


def stratified_rewards(
    outcomes: Sequence[float], scores: Sequence[float], *, alpha: float, beta: float
) -> list[float]:
    """r_hat of each rollout of one group (Eq. 3): outcomes are 0 or 1, scores any real numbers."""
    rewards = [0.0] * len(outcomes)
    for won, centre, width in ((False, 0.0, alpha), (True, 1.0, beta)):
        rows = [row for row, outcome in enumerate(outcomes) if (outcome > 0.5) == won]
        low = min((scores[row] for row in rows), default=0.0)
        high = max((scores[row] for row in rows), default=0.0)
        for row in rows:
            place = (scores[row] - low) / (high - low + EPSILON) if high > low else 0.5
            rewards[row] = centre + width * (2 * place - 1)
    return rewards


def _deviation(values: Sequence[float]) -> float:
    mean = sum(values) / len(values)
    return math.sqrt(sum((value - mean) ** 2 for value in values) / len(values))
