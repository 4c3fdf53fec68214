"""Is the dream being cheated? Every few iterations of RL some dreamed successes are played again in the real
engine.

A policy that learns to please the dream and not the world wins more and more dreams, and fewer and fewer of
them are confirmed. Each look replays at most `most` successes of one iteration's rollouts
(`components/experience/real_replay.py`); its real steps are check interactions and train nothing. The stage
ends where more dreams are won than in the first iteration and either the whole interval of the agreement lies
below the floor, or the agreement has fallen: fewer are confirmed than in all looks before, beyond chance
(Fisher's exact test, one-sided, p < 0.01 as there are several looks).
"""

from __future__ import annotations

import math
import random
from collections.abc import Mapping, Sequence

from components.environments.protocol import Adapter
from components.errors import TrainingError
from components.evaluation.metrics.intervals import fisher_fewer, proportion
from components.experience.real_replay import Replay, replay
from components.experience.side_by_side import compare_states
from components.policy.rollout import Rollout

FIGURES = ("rollout_agreement", "watched_success_rate", "hallucination_rate")
"""Of the dreamed successes that are replayed: the share confirmed, the success they are of, the share of
dreamed facts that are denied.
"""
REPLAYED = "replayed_successes"
"""Figure: how many a look replayed, so that later ones know what its agreement weighs."""
CHECKS = "check_interactions"
FALLEN = 0.01
"""Below this p-value the agreement has fallen."""


class DreamWatch:
    """Looks at the rollouts of every `every`th iteration; 0: never."""

    def __init__(self, adapter: Adapter, *, every: int, most: int, floor: float) -> None:
        self._adapter, self._every, self._most, self._floor = adapter, every, most, floor

    def look(
        self, iteration: int, rollouts: Sequence[Rollout], series: Mapping[str, Sequence[float]]
    ) -> dict[str, float]:
        """Figures of this iteration, NaN where it is not looked at; `series` are those of the iterations
        before, from 0.

        Raises:
            TrainingError: the policy cheats the dream.
        """
        idle = dict.fromkeys((*FIGURES, REPLAYED), math.nan) | {CHECKS: 0.0}
        won = [rollout.trajectory for rollout in rollouts if rollout.trajectory.success]
        if not self._every or (iteration + 1) % self._every or not won:
            return idle
        replays, spent = replay(
            self._adapter, random.Random(iteration).sample(won, min(self._most, len(won)))
        )
        confirmed, rate = sum(one.confirmed for one in replays), len(won) / len(rollouts)
        found, first = proportion(confirmed, len(replays)), next(iter(series.get("success_rate", [])), rate)
        before, looked = _earlier(series)
        fallen = fisher_fewer(confirmed, len(replays), before, looked) < FALLEN
        if rate > first and (found.high < self._floor or fallen):
            was = f"; in the looks before, {before} of {looked}" if looked else ""
            raise TrainingError(
                "The policy cheats the dream: of its dreamed successes the real engine confirms "
                f"{found}{was}, while its dreamed success "
                f"rose from {first:.2f} to {rate:.2f} (iteration {iteration + 1}).",
                f"Expected an agreement of {self._floor} or more (fidelity.min_rollout_agreement) that does "
                "not fall.",
                "Train the experience model longer or on more near misses (experience_model.epochs, "
                "data.near_miss), or stop RL sooner "
                "(rl.dream.iterations).",
            )
        figures = {
            "rollout_agreement": found.value,
            "watched_success_rate": rate,
            "hallucination_rate": self._denied_facts(replays),
        }
        return figures | {REPLAYED: float(len(replays)), CHECKS: float(spent)}

    def _denied_facts(self, replays: Sequence[Replay]) -> float:
        """The share of the facts of the replayed dreams that the real engine's states contradict; NaN where
        there are none.
        """
        compared = [
            one
            for found in replays
            for one in compare_states(self._adapter, found.dreamed, found.real_states)
        ]
        denied = sum(len(one.contradicted) for one in compared)
        claims = denied + sum(len(one.agreed) + len(one.unsaid) for one in compared)
        return denied / claims if claims else math.nan


def _earlier(series: Mapping[str, Sequence[float]]) -> tuple[int, int]:
    """(confirmed, replayed) of all looks before."""
    looks = [
        (share, count)
        for share, count in zip(series.get("rollout_agreement", []), series.get(REPLAYED, []), strict=False)
        if not math.isnan(share)
    ]
    return round(sum(share * count for share, count in looks)), int(sum(count for _, count in looks))
