"""Did a run come back? Metric by metric: equal to the bit, within a tolerance, or different."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

EQUAL, NEAR, DIFFERENT, MISSING = "equal", "within tolerance", "different", "missing"
TOLERANCE = 1e-6
"""Relative: what other rounding may change where no choice hangs on it."""
PLACE_DEPENDENT = {
    "second": "wall time: it depends on the machine and on what else runs there",
    "cost/endpoint": "answers of language-model endpoints: those that were cached at that place cost nothing",
    "cost/check_interactions": "steps of all checks, games of that place's champion included",
    "cost/replayed_episodes": "episodes begun again because infrastructure ended them",
    "champion": "games of that place's champion",
}
"""Part of a metric's name -> why the metric depends on the place, so that it is left out of the comparison.
"""


@dataclass(frozen=True)
class Verdict:
    """One metric of both runs; None where a run lacks it."""

    name: str
    first: float | None
    second: float | None
    verdict: str


def verdicts(
    first: Mapping[str, Mapping[str, Any]], second: Mapping[str, Mapping[str, Any]]
) -> list[Verdict]:
    """Of every metric that does not depend on the place."""
    names = [*first, *(name for name in second if name not in first)]
    return [_verdict(name, first.get(name), second.get(name)) for name in names if not _reason(name)]


def left_out(first: Mapping[str, Any], second: Mapping[str, Any]) -> dict[str, str]:
    """Metric -> why it is not compared."""
    return {name: reason for name in (*first, *second) if (reason := _reason(name))}


def _reason(name: str) -> str:
    return next((reason for part, reason in PLACE_DEPENDENT.items() if part in name), "")


def _verdict(name: str, first: Mapping[str, Any] | None, second: Mapping[str, Any] | None) -> Verdict:
    if first is None or second is None:
        return Verdict(name, first["value"] if first else None, second["value"] if second else None, MISSING)
    one, other = first["value"], second["value"]
    if one == other and first["n"] == second["n"]:
        return Verdict(name, one, other, EQUAL)
    numbers = one is not None and other is not None and first["n"] == second["n"]
    near = numbers and math.isclose(one, other, rel_tol=TOLERANCE, abs_tol=TOLERANCE * TOLERANCE)
    return Verdict(name, one, other, NEAR if near else DIFFERENT)
