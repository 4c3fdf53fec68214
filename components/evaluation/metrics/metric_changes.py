"""Differences between the metrics of two runs, each with an interval.

Success rates are paired by game if both runs played the same games.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from components.evaluation.metrics.intervals import Estimate
from components.evaluation.metrics.paired_outcomes import paired_difference

Entry = Mapping[str, Any]
"""One entry of metrics.json."""
Games = Mapping[str, Mapping[str, bool]]
"""Games of one run: policy -> task id -> won."""


@dataclass(frozen=True)
class Change:
    """One metric of two runs, and `second` minus `first` with its interval.

    If a run lacks the metric, its entry and the difference are None. `paired` says that the metric was
    compared game by game.
    """

    name: str
    first: Entry | None
    second: Entry | None
    difference: Estimate | None
    paired: bool = False

    @property
    def is_significant(self) -> bool:
        """True if the interval excludes zero."""
        return self.difference is not None and (self.difference.low > 0 or self.difference.high < 0)


def changes(
    first: Mapping[str, Entry], second: Mapping[str, Entry], games: Sequence[Games] = ()
) -> list[Change]:
    """Return the metrics that differ, in the order of the first run and then of the second.

    Args:
        first: metrics of the first run.
        second: metrics of the second run.
        games: games of both runs; empty if they are not available.
    """
    names = [*first, *(name for name in second if name not in first)]
    compared = [_compare_metric(name, first.get(name), second.get(name), games) for name in names]
    return [change for change in compared if _value(change.first) != _value(change.second)]


def _value(entry: Entry | None) -> float | None:
    return None if entry is None else entry["value"]


def _compare_metric(name: str, first: Entry | None, second: Entry | None, games: Sequence[Games]) -> Change:
    if first is None or second is None or first["value"] is None or second["value"] is None:
        return Change(name, first, second, None)
    parts = name.split("/")
    policy = parts[1] if len(parts) == 3 and parts[0] == "evaluate" and parts[2] == "success_rate" else ""
    outcomes = [run_games.get(policy, {}) for run_games in games]
    if len(outcomes) == 2 and outcomes[0] and outcomes[0].keys() == outcomes[1].keys():
        difference = paired_difference(
            [outcomes[1][game] for game in outcomes[0]], [outcomes[0][game] for game in outcomes[0]]
        )
        return Change(name, first, second, difference, paired=True)
    return Change(name, first, second, unpaired(first, second))


def unpaired(first: Entry, second: Entry) -> Estimate:
    """Return `second` minus `first` for metrics measured on different samples; n is the smaller of both.

    The squared distances to the ends of both intervals add up: "MOVER", Zou and Donner (2008), Statistics in
    Medicine 27:1693.
    """
    change = second["value"] - first["value"]
    low = change - math.hypot(second["value"] - second["low"], first["high"] - first["value"])
    high = change + math.hypot(second["high"] - second["value"], first["value"] - first["low"])
    return Estimate(change, min(first["n"], second["n"]), low, high)
