"""Success of several runs, such as three seeds, on the same held-out games: one number a policy and one a
comparison.

n is the number of games, however often each is played; the interval speaks of further games and further runs
(`crossed_mean`).
"""

from __future__ import annotations

from collections.abc import Mapping

from components.errors import DataError
from components.evaluation.metrics.intervals import Estimate, crossed_mean

Games = Mapping[str, Mapping[str, bool]]
"""Of one run: policy -> task id -> won."""
COMPARED = (("dreamed", "cloned"), ("refined", "dreamed"), ("refined", "cloned"))


def pool(runs: Mapping[str, Games], confidence: float = 0.95) -> dict[str, Estimate]:
    """`evaluate/{policy}/success_rate` and `evaluate/{later}_minus_{earlier}` over all `runs` (name ->
    games).

    Raises:
        DataError: fewer than two runs, one without games, or runs that played other games or other policies
            than the first.
    """
    names = list(runs)
    if len(names) < 2:
        raise DataError(
            f"{len(names)} run was given.", "Expected at least two.", "Name the runs of several seeds."
        )
    for name, played in runs.items():
        without = sorted(policy for policy, won in played.items() if not won)
        if without or not played:
            raise DataError(
                f"{name} has no games of {', '.join(without) or 'any policy'}.",
                "Expected some.",
                "Name finished runs.",
            )
    first = runs[names[0]]
    for name in names[1:]:
        _same(names[0], first, name, runs[name])
    won = {
        policy: [[float(run[policy][game]) for game in first[policy]] for run in runs.values()]
        for policy in first
    }
    pooled = {
        f"evaluate/{policy}/success_rate": _inside(crossed_mean(rows, confidence), 0.0)
        for policy, rows in won.items()
    }
    for later, earlier in COMPARED:
        if later in won and earlier in won:
            gains = [
                [a - b for a, b in zip(*pair, strict=True)]
                for pair in zip(won[later], won[earlier], strict=True)
            ]
            pooled[f"evaluate/{later}_minus_{earlier}"] = _inside(crossed_mean(gains, confidence), -1.0)
    return pooled


def _inside(estimate: Estimate, least: float) -> Estimate:
    return Estimate(estimate.value, estimate.n, max(least, estimate.low), min(1.0, estimate.high))


def _same(name: str, games: Games, other_name: str, other: Games) -> None:
    if set(games) != set(other):
        raise DataError(
            f"{other_name} evaluated {sorted(other)}, {name} evaluated {sorted(games)}.",
            "Expected the same policies.",
        )
    for policy in games:
        missing = set(games[policy]) ^ set(other[policy])
        if missing:
            found = (
                f"{name} and {other_name} differ in {len(missing)} games of the {policy} policy, such "
                f"as {min(missing)}."
            )
            raise DataError(
                found, "Expected the same held-out games.", "Pool runs of the same data and evaluation.tasks."
            )
