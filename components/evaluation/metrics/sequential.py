"""Bounds of a proportion that is examined several times while data arrives, and the verdict against a floor.

A gate plays a batch of games, examines the bounds (a "look"), and plays another batch while the floor lies
between the bounds. Each look spends a share of the error probability, so the bounds hold at all looks
together. These are "repeated confidence intervals" (Jennison and Turnbull 1989, JRSS B 51:305). The error is
divided evenly among the planned looks (Bonferroni's inequality; Dunn 1961, JASA 56:52). This is valid for any
batch sizes, including random ones such as the number of dreamed successes in a batch. The bounds of one look
are exact (Clopper and Pearson 1934, Biometrika 26:404).

Error rates with `error` 0.05, for any true proportion p:

- If p is below the floor, the verdict is `ABOVE` with a probability of at most 0.05.
- If p is at or above the floor, the verdict is `BELOW` with a probability of at most 0.05.

An even split costs little compared with Pocock's exact boundary (nominal 0.0125 instead of 0.0182 for four
looks) and needs no table.
"""

from __future__ import annotations

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
    """Return the Clopper-Pearson bounds; the true proportion violates each with a probability of at most
    `error`.

    Raises:
        ValueError: not 0 <= successes <= n, or error outside (0, 0.5].
    """
    if not 0 <= successes <= n:
        raise ValueError(f"{successes} successes of {n}; expected 0 <= successes <= n")
    if not 0 < error <= 0.5:
        raise ValueError(f"error is {error}; expected a number above 0 and at most 0.5, such as 0.05")
    low = float(betaincinv(successes, n - successes + 1, error)) if successes else 0.0
    high = float(betaincinv(successes + 1, n - successes, 1 - error)) if successes < n else 1.0
    return low, high


def repeated_bounds(successes: int, n: int, *, looks: int, error: float = ERROR) -> tuple[float, float]:
    """Return bounds that hold at all `looks` looks together.

    Args:
        successes: successes so far.
        n: observations so far.
        looks: planned number of looks.
        error: probability that the true proportion violates one of the two bounds at any look.

    Raises:
        ValueError: fewer than one look, or an input that `exact_bounds` refuses.
    """
    if looks < 1:
        raise ValueError(f"looks is {looks}; expected at least 1")
    return exact_bounds(successes, n, error / looks)


def verdict_against(floor: float, successes: int, n: int, *, looks: int, error: float = ERROR) -> Verdict:
    """Return `ABOVE` if the lower bound reaches the floor, `BELOW` if the upper bound is below it, else
    `UNDECIDED`.
    """
    low, high = repeated_bounds(successes, n, looks=looks, error=error)
    if low >= floor - _ROUNDING:
        return ABOVE
    return BELOW if high < floor - _ROUNDING else UNDECIDED


def least_successes(floor: float, n: int, *, looks: int, error: float = ERROR) -> int | None:
    """Return the fewest successes of `n` whose lower bound reaches the floor; None if `n` of `n` do not."""
    passing = (k for k in range(n + 1) if verdict_against(floor, k, n, looks=looks, error=error) == ABOVE)
    return next(passing, None)
