"""Bounds of a proportion that is looked at several times while observations come in, and the verdict against
a floor.

A gate plays a batch, looks at the bounds, and plays on while the floor lies between them. Each look costs a
share of the error, so the bounds hold at all looks together: "repeated confidence intervals" (Jennison and
Turnbull 1989, JRSS B 51:305). The error is divided evenly among the planned looks (Bonferroni's inequality;
Dunn 1961, JASA 56:52). This holds for any batch sizes, also random ones such as the number of dreamed
successes in a batch. Bounds of one look are exact (Clopper and Pearson 1934, Biometrika 26:404).

Error rates, whatever the true proportion p is, with `error` 0.05:
p below the floor: the verdict `ABOVE` comes with a probability of at most 0.05. p at or above the floor:
`BELOW` with at most 0.05. An even split costs little against Pocock's exact boundary (nominal 0.0125 instead
of 0.0182 for four looks) and needs no table.
"""

from __future__ import annotations

import math
from typing import Literal

from scipy.special import betaincinv

ABOVE: Literal["above"] = "above"
BELOW: Literal["below"] = "below"
UNDECIDED: Literal["undecided"] = "undecided"
Verdict = Literal["above", "below", "undecided"]

ERROR = 0.05
"""Probability of a wrong verdict on either side of the floor, over all looks together."""
_ROUNDING = 1e-9


def exact_bounds(successes: int, n: int, error: float) -> tuple[float, float]:
    """Clopper-Pearson bounds; each of them is missed by the true proportion with a probability of at most
    `error`.

    Raises:
        ValueError: not 0 <= successes <= n, or error not inside (0, 0.5].
    """
    if not 0 <= successes <= n:
        raise ValueError(f"{successes} successes of {n}; expected 0 <= successes <= n")
    if not 0 < error <= 0.5:
        raise ValueError(f"error is {error}; expected a number above 0 and at most 0.5, such as 0.05")
    low = float(betaincinv(successes, n - successes + 1, error)) if successes else 0.0
    high = float(betaincinv(successes + 1, n - successes, 1 - error)) if successes < n else 1.0
    return low, high


def repeated_bounds(successes: int, n: int, *, looks: int, error: float = ERROR) -> tuple[float, float]:
    """Bounds that hold at each of `looks` looks at once; each side is missed with a probability of at most
    `error` in all.

    Raises:
        ValueError: fewer than one look, or what `exact_bounds` refuses.
    """
    if looks < 1:
        raise ValueError(f"looks is {looks}; expected at least 1")
    return exact_bounds(successes, n, error / looks)


def verdict_against(floor: float, successes: int, n: int, *, looks: int, error: float = ERROR) -> Verdict:
    """`ABOVE` if the lower bound reaches the floor, `BELOW` if the upper bound lies below it, else
    `UNDECIDED`.
    """
    low, high = repeated_bounds(successes, n, looks=looks, error=error)
    if low >= floor - _ROUNDING:
        return ABOVE
    return BELOW if high < floor - _ROUNDING else UNDECIDED


def least_successes(floor: float, n: int, *, looks: int, error: float = ERROR) -> int | None:
    """Fewest successes of `n` whose lower bound reaches the floor; None where even n of n do not."""
    passing = (k for k in range(n + 1) if verdict_against(floor, k, n, looks=looks, error=error) == ABOVE)
    return next(passing, None)


def mcnemar_greater(gained: int, lost: int) -> float:
    """One-sided exact p-value (McNemar 1947) that `gained` or more of the games won by one side alone fall to
    the first by chance.
    """
    total = gained + lost
    return min(1.0, sum(math.comb(total, k) for k in range(gained, total + 1)) / 2**total)
