"""The reward of an episode: its outcome, or HERO's hybrid of outcome and progress (arXiv 2510.07242).

    r_hat = -ALPHA + 2 ALPHA z                                                 reward of a failure (Eq. 3)
    r_hat = (1 - BETA) + 2 BETA z                                              reward of a success
    w(sigma) = w_min + (w_max - w_min) / (1 + exp(-k (sigma - sigma_mean)))    weight of a group (Eq. 5)

z is the score of the episode, scaled to 0 for the lowest and 1 for the highest failure (or success) of its
group. sigma is the standard deviation of the group's scores.

    dreamgym retrain rl.algorithm.reward=hero rl.algorithm.scale_rewards=false

Deviations from the paper:
1. The score is the adapter's `progress`, the share of the goal that is reached, or with `hero_learnt` the
   estimate of a small reward model (`reward_model.py`). The paper's is far larger.
2. w multiplies the advantages, not the rewards. A factor on the rewards cancels when they are divided by the
   group's standard deviation, and so do ALPHA if all episodes failed and BETA if all succeeded: GRPO refuses
   `scale_rewards` with it. PPO divides by the deviation of the iteration and may have groups of one, so it
   has no `reward`.
3. If all successes (or all failures) of a group have one score, or there is a single one, their z is 1/2. A
   single success is then worth 1, not the lower end of its band. Eq. 3 has z = 0 there.
4. sigma_mean is a running mean with decay 0.9, as in the verl port. The first group is weighted as one with
   the mean deviation.
5. w does not scale the penalty of idle replies. With GiGPO (`step_weight`) r_hat also enters the advantages
   of steps, where the discount makes a longer failure's negative r_hat weigh less.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from components.policy.rollout import Rollout
from components.records import Trajectory

EPSILON = 1e-6
DECAY = 0.9
"""Decay of the running mean of sigma."""
ALPHA = BETA = 0.05
"""Half-widths of the bands: failures lie in [-ALPHA, ALPHA], successes in [1 - BETA, 1 + BETA]."""
MIN_WEIGHT = 0.4
MAX_WEIGHT = 3.0
STEEPNESS = 6.0
"""w_min, w_max and k of the paper's appendix; its text has 0.5, 2 and 5."""

Progress = Callable[[Trajectory], float]
"""Episode -> share of the goal that is reached, 0 to 1."""


class Rewards:
    """Rewards by outcome: 1.0 for a success, else 0.0.

    Attributes:
        figures: what each iteration reports of the rewards.
    """

    figures: Mapping[str, float] = {}

    def returns(self, group: Sequence[Rollout]) -> tuple[list[float], float]:
        """Return the return of each rollout of a group, and the weight of the group's advantages."""
        return [rollout.reward for rollout in group], 1.0

    def state_dict(self) -> dict[str, Any]:
        """Return an empty dict: there is no state."""
        return {}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Do nothing: there is no state."""


class HybridRewards(Rewards):
    """HERO's reward, from outcome and progress.

    Args:
        figures: of the measure of progress.
    """

    def __init__(self, progress: Progress, figures: Mapping[str, float] | None = None) -> None:
        self._progress = progress
        self.figures = dict(figures or {})
        self._mean_deviation: float | None = None

    def returns(self, group: Sequence[Rollout]) -> tuple[list[float], float]:
        """Return r_hat of each rollout, and the group's weight w.

        The running mean of sigma includes the group only after its weight is computed.
        """
        scores = [self._progress(rollout.trajectory) for rollout in group]
        outcomes = [rollout.reward for rollout in group]
        deviation = _standard_deviation(scores)
        weight = self._weight(deviation)
        if self._mean_deviation is None:
            self._mean_deviation = deviation
        else:
            self._mean_deviation = DECAY * self._mean_deviation + (1 - DECAY) * deviation
        return stratified_rewards(outcomes, scores, alpha=ALPHA, beta=BETA), weight

    def _weight(self, deviation: float) -> float:
        excess = 0.0 if self._mean_deviation is None else deviation - self._mean_deviation
        return MIN_WEIGHT + (MAX_WEIGHT - MIN_WEIGHT) / (1 + math.exp(-STEEPNESS * excess))

    def state_dict(self) -> dict[str, Any]:
        """Return the running mean of sigma."""
        return {"mean_deviation": self._mean_deviation}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue from `state`."""
        self._mean_deviation = state["mean_deviation"]


def stratified_rewards(
    outcomes: Sequence[float], scores: Sequence[float], *, alpha: float, beta: float
) -> list[float]:
    """Return r_hat of each rollout of one group (Eq. 3).

    Args:
        outcomes: 0 or 1 per rollout.
        scores: any real number per rollout.
        alpha: half-width of the failures' band.
        beta: half-width of the successes' band.
    """
    rewards = [0.0] * len(outcomes)
    for is_success, centre, width in ((False, 0.0, alpha), (True, 1.0, beta)):
        rows = [row for row, outcome in enumerate(outcomes) if (outcome > 0.5) == is_success]
        low = min((scores[row] for row in rows), default=0.0)
        high = max((scores[row] for row in rows), default=0.0)
        for row in rows:
            rank = (scores[row] - low) / (high - low + EPSILON) if high > low else 0.5
            rewards[row] = centre + width * (2 * rank - 1)
    return rewards


def _standard_deviation(values: Sequence[float]) -> float:
    mean = sum(values) / len(values)
    return math.sqrt(sum((value - mean) ** 2 for value in values) / len(values))
