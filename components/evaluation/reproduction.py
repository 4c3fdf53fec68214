"""Did a run come back? Metric by metric: equal to the bit, within a tolerance, or different."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

EQUAL, NEAR, DIFFERENT, MISSING = "equal", "within tolerance", "different", "missing"
TOLERANCE = 1e-6
"""Relative: what other rounding may change where no choice hangs on it."""
TIMED = ("second",)
"""Parts of the names of metrics that tell the machine's speed."""
EARLIER = ("cost/endpoint",)
"""Beginnings of the names of metrics that depend on what was cached before."""


@dataclass(frozen=True)
class Verdict:
    """One metric of both runs; None where a run lacks it."""

    name: str
    first: float | None
    second: float | None
    verdict: str


def verdicts(first: Mapping[str, Mapping[str, Any]], second: Mapping[str, Mapping[str, Any]]) -> list[Verdict]:
    """Of every metric that does not tell the machine's speed."""
    names = [*first, *(name for name in second if name not in first)]
    kept = [name for name in names if not any(part in name for part in TIMED) and not name.startswith(EARLIER)]
    return [_verdict(name, first.get(name), second.get(name)) for name in kept]


def _verdict(name: str, first: Mapping[str, Any] | None, second: Mapping[str, Any] | None) -> Verdict:
    if first is None or second is None:
        return Verdict(name, first["value"] if first else None, second["value"] if second else None, MISSING)
    one, other = first["value"], second["value"]
    if one == other and first["n"] == second["n"]:
        return Verdict(name, one, other, EQUAL)
    numbers = one is not None and other is not None and first["n"] == second["n"]
    near = numbers and math.isclose(one, other, rel_tol=TOLERANCE, abs_tol=TOLERANCE * TOLERANCE)
    return Verdict(name, one, other, NEAR if near else DIFFERENT)
