"""Comparison of a run's metrics with those of its reproduction.

The verdict on each metric is: equal, within tolerance, different or missing.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

EQUAL, NEAR, DIFFERENT, MISSING = "equal", "within tolerance", "different", "missing"
TOLERANCE = 1e-6
"""Relative tolerance: the effect of different rounding as long as it changes no discrete choice."""
PLACE_DEPENDENT = {
    "second": "wall time: it depends on the machine and its other load",
    "/gpu_": "memory and use of a GPU: they depend on the machine",
    "cost/endpoint": "answers of language-model endpoints: answers cached on that machine cost nothing",
    "cost/check_interactions": "real steps of all checks, including games of that machine's champion",
    "cost/replayed_episodes": "episodes restarted after infrastructure failures",
    "champion": "games of that machine's champion",
}
"""Part of a metric's name -> the reason why the metric depends on the machine and is not compared."""


@dataclass(frozen=True)
class MetricVerdict:
    """Values of one metric in both runs (None if a run lacks it) and the verdict of the comparison."""

    name: str
    first: float | None
    second: float | None
    verdict: str


def verdicts(
    first: Mapping[str, Mapping[str, Any]], second: Mapping[str, Mapping[str, Any]]
) -> list[MetricVerdict]:
    """Return one verdict for each metric that does not depend on the machine.

    Args:
        first: metrics of the original run, as in metrics.json.
        second: metrics of its reproduction.
    """
    names = [*first, *(name for name in second if name not in first)]
    return [
        _compare_metric(name, first.get(name), second.get(name))
        for name in names
        if not _exclusion_reason(name)
    ]


def left_out(first: Mapping[str, Any], second: Mapping[str, Any]) -> dict[str, str]:
    """Return the metrics that are not compared: name -> reason."""
    return {name: reason for name in (*first, *second) if (reason := _exclusion_reason(name))}


def _exclusion_reason(name: str) -> str:
    return next((reason for part, reason in PLACE_DEPENDENT.items() if part in name), "")


def _compare_metric(
    name: str, first: Mapping[str, Any] | None, second: Mapping[str, Any] | None
) -> MetricVerdict:
    if first is None or second is None:
        return MetricVerdict(
            name, first["value"] if first else None, second["value"] if second else None, MISSING
        )
    one, other = first["value"], second["value"]
    if one == other and first["n"] == second["n"]:
        return MetricVerdict(name, one, other, EQUAL)
    is_comparable = one is not None and other is not None and first["n"] == second["n"]
    is_near = is_comparable and math.isclose(one, other, rel_tol=TOLERANCE, abs_tol=TOLERANCE * TOLERANCE)
    return MetricVerdict(name, one, other, NEAR if is_near else DIFFERENT)
