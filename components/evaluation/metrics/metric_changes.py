"""How the metrics of two runs differ, each with an interval: paired by game where both played the same
games.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from components.evaluation.metrics.intervals import Estimate, paired_difference

Entry = Mapping[str, Any]
Games = Mapping[str, Mapping[str, bool]]


@dataclass(frozen=True)
class Change:
    """One metric of two runs and `second` minus `first` with its interval; `paired` says that it was compared
    game by game.

    A run that lacks the metric has None, and then there is no difference.
    """

    name: str
    first: Entry | None
    second: Entry | None
    difference: Estimate | None
    paired: bool = False

    @property
    def sure(self) -> bool:
        """True if the interval leaves out zero."""
        return self.difference is not None and (self.difference.low > 0 or self.difference.high < 0)


def changes(
    first: Mapping[str, Entry], second: Mapping[str, Entry], games: Sequence[Games] = ()
) -> list[Change]:
    """The metrics that differ, in the order of the first run's and then the second's. Args: games: of both
    runs, policy -> task -> won.
    """
    names = [*first, *(name for name in second if name not in first)]
    found = [_change(name, first.get(name), second.get(name), games) for name in names]
    return [change for change in found if _value(change.first) != _value(change.second)]


def _value(entry: Entry | None) -> float | None:
    return None if entry is None else entry["value"]


def _change(name: str, first: Entry | None, second: Entry | None, games: Sequence[Games]) -> Change:
    if first is None or second is None or first["value"] is None or second["value"] is None:
        return Change(name, first, second, None)
    parts = name.split("/")
    policy = parts[1] if len(parts) == 3 and parts[0] == "evaluate" and parts[2] == "success_rate" else ""
    won = [played.get(policy, {}) for played in games]
    if len(won) == 2 and won[0] and won[0].keys() == won[1].keys():
        found = paired_difference([won[1][game] for game in won[0]], [won[0][game] for game in won[0]])
        return Change(name, first, second, found, paired=True)
    return Change(name, first, second, unpaired(first, second))


def unpaired(first: Entry, second: Entry) -> Estimate:
    """`second` minus `first`, as if they had been measured on different things: the squared distances to the
    ends of both intervals add up (Zou and Donner 2008, Statistics in Medicine 27:1693, "MOVER"). n is the
    smaller one.
    """
    change = second["value"] - first["value"]
    low = change - math.hypot(second["value"] - second["low"], first["high"] - first["value"])
    high = change + math.hypot(second["high"] - second["value"], first["value"] - first["low"])
    return Estimate(change, min(first["n"], second["n"]), low, high)
