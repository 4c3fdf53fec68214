"""Is the dream being cheated? Every few iterations of RL some dreamed successes are played again in the real engine.

A policy that learns to please the dream and not the world wins more and more dreams, and fewer and fewer of them are confirmed. Each
look replays at most `most` successes of one iteration's rollouts (`components/experience/agreement.py`); its real steps are check
interactions and train nothing. Where the whole interval of the agreement has fallen below the floor while more dreams are won than in the
first iteration, the stage ends.
"""

from __future__ import annotations

import math
import random
from collections.abc import Mapping, Sequence

from components.environments.protocol import Adapter
from components.errors import TrainingError
from components.evaluation.intervals import proportion
from components.experience.agreement import replay
from components.policy.rollout import Rollout

FIGURES = ("rollout_agreement", "watched_success_rate")
CHECKS = "check_interactions"


class DreamWatch:
    """Looks at the rollouts of every `every`th iteration; 0: never."""

    def __init__(self, adapter: Adapter, *, every: int, most: int, floor: float) -> None:
        self._adapter, self._every, self._most, self._floor = adapter, every, most, floor

    def look(self, iteration: int, rollouts: Sequence[Rollout], series: Mapping[str, Sequence[float]]) -> dict[str, float]:
        """Figures of this iteration, NaN where it is not looked at; `series` are those of the iterations before, from 0.

        Raises:
            TrainingError: the policy cheats the dream.
        """
        idle = dict.fromkeys(FIGURES, math.nan) | {CHECKS: 0.0}
        won = [rollout.trajectory for rollout in rollouts if rollout.trajectory.success]
        if not self._every or (iteration + 1) % self._every or not won:
            return idle
        replays, spent = replay(self._adapter, random.Random(iteration).sample(won, min(self._most, len(won))))
        found, rate = proportion(sum(one.confirmed for one in replays), len(replays)), len(won) / len(rollouts)
        first = next(iter(series.get("success_rate", [])), rate)
        if found.high < self._floor and rate > first:
            raise TrainingError(
                f"The policy cheats the dream: of its dreamed successes the real engine confirms {found}, while its dreamed success rose "
                f"from {first:.2f} to {rate:.2f} (iteration {iteration + 1}).",
                f"Expected an agreement of {self._floor} or more (fidelity.min_rollout_agreement).",
                "Train the experience model longer or on more near misses (experience_model.epochs, data.near_miss), or stop RL sooner "
                "(synthetic_rl.iterations).",
            )
        return {"rollout_agreement": found.value, "watched_success_rate": rate, CHECKS: float(spent)}
