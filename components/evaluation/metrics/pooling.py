"""Success rates of several runs, such as three seeds, pooled over the same held-out games.

n is the number of games, however often each is played. The intervals cover further games and further runs
(`crossed_mean`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from components.errors import DataError
from components.evaluation.metrics.intervals import Estimate, crossed_mean

Games = Mapping[str, Mapping[str, bool]]
"""Games of one run: policy -> task id -> won."""
Rows = list[list[float]]
"""One row per run: 1.0 for each game that it won, in the order of the first run's games."""
COMPARED = (("dreamed", "cloned"), ("refined", "dreamed"), ("refined", "cloned"))
"""Pairs (later, earlier) of policies whose difference is reported."""


def pool(runs: Mapping[str, Games], confidence: float = 0.95) -> dict[str, Estimate]:
    """Return `evaluate/{policy}/success_rate` and `evaluate/{later}_minus_{earlier}` over all `runs`.

    Args:
        runs: name of a run -> its games.
        confidence: level of the intervals.

    Raises:
        DataError: fewer than two runs, a run without games, or runs with different games or policies.
    """
    _check_runs(runs)
    first = next(iter(runs.values()))
    outcomes = {
        policy: [[float(run[policy][game]) for game in first[policy]] for run in runs.values()]
        for policy in first
    }
    metrics = {
        f"evaluate/{policy}/success_rate": _clip_interval(crossed_mean(rows, confidence), 0.0)
        for policy, rows in outcomes.items()
    }
    for later, earlier in COMPARED:
        if later in outcomes and earlier in outcomes:
            gains = _subtract(outcomes[later], outcomes[earlier])
            metrics[f"evaluate/{later}_minus_{earlier}"] = _clip_interval(
                crossed_mean(gains, confidence), -1.0
            )
    return metrics


def _check_runs(runs: Mapping[str, Games]) -> None:
    names = list(runs)
    if len(names) < 2:
        raise DataError(
            f"{len(names)} run was given.", "Expected at least two runs.", "Name the runs of several seeds."
        )
    for name, games in runs.items():
        empty_policies = sorted(policy for policy, outcomes in games.items() if not outcomes)
        if empty_policies or not games:
            raise DataError(
                f"The run {name} has no games of {', '.join(empty_policies) or 'any policy'}.",
                "Expected at least one game of each policy.",
                "Name finished runs.",
            )
    for name in names[1:]:
        _check_same_games(names[0], runs[names[0]], name, runs[name])


def _check_same_games(name: str, games: Games, other_name: str, other: Games) -> None:
    if set(games) != set(other):
        raise DataError(
            f"The run {other_name} evaluated {sorted(other)}, the run {name} evaluated {sorted(games)}.",
            "Expected the same policies.",
        )
    for policy in games:
        differing_games = set(games[policy]) ^ set(other[policy])
        if differing_games:
            difference = (
                f"The runs {name} and {other_name} differ in {len(differing_games)} games of the {policy} "
                f"policy, such as {min(differing_games)}."
            )
            raise DataError(
                difference,
                "Expected the same held-out games.",
                "Pool runs of the same data and evaluation.tasks.",
            )


def _subtract(later: Sequence[Sequence[float]], earlier: Sequence[Sequence[float]]) -> Rows:
    return [
        [a - b for a, b in zip(later_row, earlier_row, strict=True)]
        for later_row, earlier_row in zip(later, earlier, strict=True)
    ]


def _clip_interval(estimate: Estimate, lowest: float) -> Estimate:
    return Estimate(estimate.value, estimate.n, max(lowest, estimate.low), min(1.0, estimate.high))
