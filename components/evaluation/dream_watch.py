"""Detection of a policy that exploits errors of the dream during RL.

Such a policy has more and more dreamed successes, and the real engine confirms fewer and fewer of them. Every
few iterations the watch replays up to `max_replays` dreamed successes in the real engine
(`components/experience/real_replay.py`). These real steps are check interactions; only the experience model
of a further round is trained on them. RL stops if the dreamed success rate is above that of the first
iteration and one of these holds:

- The whole interval of the agreement is below the floor.
- The agreement has fallen: fewer successes are confirmed than in all earlier checks together, beyond chance
  (Fisher's exact test, one-sided, p < 0.01 because there are several checks).
"""

from __future__ import annotations

import math
import random
from collections.abc import Mapping, Sequence

from components.environments.capabilities import Adapter, own_members
from components.environments.mixed.adapter import adapter_of
from components.errors import TrainingError
from components.evaluation.metrics.intervals import fisher_one_sided_p_value, proportion
from components.experience.real_replay import Replay, replay
from components.experience.state_comparison import compare_states
from components.policy.rollout import Rollout
from components.records import Task

WATCHED_SERIES = ("rollout_agreement", "watched_success_rate", "hallucination_rate")
"""Series of a check: share of replayed dreamed successes that are confirmed, dreamed success rate of the same
iteration, and share of dreamed facts that the real engine contradicts.
"""
REPLAYED_SUCCESSES = "replayed_successes"
"""Series: number of replayed successes. Later checks need it to weight the agreement."""
CHECK_INTERACTIONS = "check_interactions"
"""Series: real steps of a check."""
MAX_P_VALUE = 0.01
"""Below this p-value the agreement has fallen."""


class DreamWatch:
    """Checks the rollouts of every `interval`-th iteration; never if `interval` is 0.

    Args:
        adapter: the real environment.
        interval: iterations from one check to the next.
        max_replays: largest number of dreamed successes that one check replays.
        floor: lowest acceptable share of confirmed dreamed successes.

    Attributes:
        replays: those of the last iteration; empty if it was not checked.
    """

    def __init__(self, adapter: Adapter, *, interval: int, max_replays: int, floor: float) -> None:
        self._adapter = adapter
        self._interval = interval
        self._max_replays = max_replays
        self._floor = floor
        self.replays: list[Replay] = []

    def check(
        self, iteration: int, rollouts: Sequence[Rollout], series: Mapping[str, Sequence[float]]
    ) -> dict[str, float]:
        """Return the values of the watched series for this iteration; NaN if it is not checked.

        Args:
            iteration: number of the iteration, from 0.
            rollouts: dreamed rollouts of this iteration.
            series: values of the earlier iterations.

        Raises:
            TrainingError: the policy exploits errors of the dream.
        """
        self.replays = []
        successes = [rollout.trajectory for rollout in rollouts if rollout.trajectory.success]
        replayable = [one for one in successes if self._has_real_world(one.task)]
        if not self._interval or (iteration + 1) % self._interval or not replayable:
            return dict.fromkeys((*WATCHED_SERIES, REPLAYED_SUCCESSES), math.nan) | {CHECK_INTERACTIONS: 0.0}
        sample = random.Random(iteration).sample(replayable, min(self._max_replays, len(replayable)))
        self.replays, real_steps = replay(self._adapter, sample)
        replays = self.replays
        confirmed = sum(one.confirmed for one in replays)
        success_rate = len(successes) / len(rollouts)
        self._require_agreement(iteration, confirmed, len(replays), success_rate, series)
        values = {
            "rollout_agreement": proportion(confirmed, len(replays)).value,
            "watched_success_rate": success_rate,
            "hallucination_rate": self._contradicted_share(replays),
        }
        return values | {REPLAYED_SUCCESSES: float(len(replays)), CHECK_INTERACTIONS: float(real_steps)}

    def _has_real_world(self, task: Task) -> bool:
        """False for a generated task whose world the adapter cannot build: reality says nothing about it."""
        return not task.generated or "embody" in own_members(adapter_of(self._adapter, task))

    def _require_agreement(
        self,
        iteration: int,
        confirmed: int,
        replayed: int,
        success_rate: float,
        series: Mapping[str, Sequence[float]],
    ) -> None:
        agreement = proportion(confirmed, replayed)
        first_success_rate = next(iter(series.get("success_rate", [])), success_rate)
        earlier_confirmed, earlier_replayed = _earlier_checks(series)
        p_value = fisher_one_sided_p_value(confirmed, replayed, earlier_confirmed, earlier_replayed)
        is_too_low = agreement.high < self._floor or p_value < MAX_P_VALUE
        if success_rate <= first_success_rate or not is_too_low:
            return
        earlier = (
            f" (in earlier checks {earlier_confirmed} of {earlier_replayed})" if earlier_replayed else ""
        )
        raise TrainingError(
            "The policy exploits errors of the dream. The real engine confirms "
            f"{agreement} of its dreamed successes{earlier}, while its dreamed success rate "
            f"rose from {first_success_rate:.2f} to {success_rate:.2f} (iteration {iteration + 1}).",
            f"Expected an agreement of at least {self._floor} (fidelity.min_rollout_agreement) that does not "
            "fall.",
            "Train the experience model longer or on more near misses (experience_model.epochs, "
            "data.near_miss), or stop RL earlier (rl.dream.iterations).",
        )

    def _contradicted_share(self, replays: Sequence[Replay]) -> float:
        """Return the share of dreamed facts that the real engine's states contradict; NaN without facts."""
        comparisons = [
            comparison
            for one in replays
            for comparison in compare_states(self._adapter, one.dreamed, one.real_states)
        ]
        contradicted = sum(len(one.contradicted) for one in comparisons)
        claims = contradicted + sum(len(one.agreed) + len(one.unsaid) for one in comparisons)
        return contradicted / claims if claims else math.nan


def _earlier_checks(series: Mapping[str, Sequence[float]]) -> tuple[int, int]:
    """Return (confirmed, replayed) of all earlier checks together."""
    checks = [
        (share, count)
        for share, count in zip(
            series.get("rollout_agreement", []), series.get(REPLAYED_SUCCESSES, []), strict=False
        )
        if not math.isnan(share)
    ]
    return round(sum(share * count for share, count in checks)), int(sum(count for _, count in checks))
