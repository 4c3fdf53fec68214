"""Estimates with n and a confidence interval: proportions, means, medians.

Sources: Wilson (1927) for a proportion, at the effective sample size if observations are clustered; Student's
t for a mean; Cameron, Gelbach and Miller (2011), J. Bus. Econ. Stat. 29:238, with Satterthwaite's (1946)
degrees of freedom, for a mean over both seeds and games; Fieller (1954), J. R. Stat. Soc. B 16:175, for a
ratio of two such means; Maritz and Jarrett (1978), JASA 73:194, for a median; Fisher (1935) for the p-value
of two independent proportions. `paired_outcomes.py` compares outcomes of the same games. No random numbers:
the same input always gives the same interval.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import NormalDist
from typing import Any

from scipy.special import bdtr, stdtr, stdtrit


@dataclass(frozen=True)
class Estimate:
    """A value, its number of observations n, and the ends of its confidence interval in the value's unit."""

    value: float
    n: int
    low: float
    high: float

    def to_json(self) -> dict[str, float | int]:
        """Return the four keys of an entry of metrics.json."""
        return {"value": self.value, "n": self.n, "low": self.low, "high": self.high}

    @classmethod
    def from_json(cls, entry: Mapping[str, Any]) -> Estimate:
        """Return the estimate of an entry of metrics.json."""
        return Estimate(entry["value"], int(entry["n"]), entry["low"], entry["high"])

    def __str__(self) -> str:
        return f"{self.value:.3f} (n={self.n}, {self.low:.3f} to {self.high:.3f})"


def exact_value(value: float) -> Estimate:
    """Return an estimate without uncertainty, such as a count: n is 1, low and high are the value."""
    return Estimate(float(value), 1, float(value), float(value))


def proportion(successes: int, n: int, confidence: float = 0.95) -> Estimate:
    """Return the share of successes with its Wilson interval; for n = 0 it is 0 with the interval 0 to 1.

    Raises:
        ValueError: not 0 <= successes <= n, or confidence outside (0, 1).
    """
    if not 0 <= successes <= n:
        raise ValueError(f"{successes} successes of {n}; expected 0 <= successes <= n")
    if n == 0:
        return Estimate(0.0, 0, 0.0, 1.0)
    return _wilson(successes / n, n, n, confidence)


def _wilson(p: float, n: int, effective_n: float, confidence: float) -> Estimate:
    z = _normal_quantile(confidence)
    centre = (p + z * z / (2 * effective_n)) / (1 + z * z / effective_n)
    half = (
        z
        / (1 + z * z / effective_n)
        * math.sqrt(p * (1 - p) / effective_n + z * z / (4 * effective_n * effective_n))
    )
    return Estimate(p, n, 0.0 if p == 0 else centre - half, 1.0 if p == 1 else centre + half)


def clustered_proportion(
    successes: Sequence[int],
    clusters: Sequence[str],
    confidence: float = 0.95,
    weights: Sequence[int] | None = None,
) -> Estimate:
    """Return the share of successes with an interval for observations that are correlated within a cluster.

    A cluster is for example the steps of one task's episodes. The interval is Wilson's at the effective
    sample size n / d. The design effect d is the variance of the ratio estimator between clusters (Cochran
    1977, section 9A.1) divided by the variance of independent observations; it is at least 1. Where all
    observations are alike, each cluster counts as one. The n of the result is the number of observations.

    Args:
        successes: number of successes of each entry.
        clusters: cluster of each entry.
        confidence: level of the interval.
        weights: number of observations of each entry, such as the facts of a state; None: one each.

    Raises:
        ValueError: sequences of different lengths.
    """
    sizes = [1] * len(successes) if weights is None else list(weights)
    if not len(successes) == len(clusters) == len(sizes):
        raise ValueError(
            f"{len(successes)} outcomes, {len(clusters)} clusters, {len(sizes)} weights; expected equal "
            "counts"
        )
    total = sum(sizes)
    success_count = int(sum(successes))
    plain = proportion(success_count, total, confidence)
    residuals: dict[str, float] = {}
    for success, cluster, size in zip(successes, clusters, sizes, strict=True):
        residuals[cluster] = residuals.get(cluster, 0.0) + success - plain.value * size
    groups = len(residuals)
    independent = total * plain.value * (1 - plain.value)
    if groups < 2:
        return plain
    if independent == 0:  # all alike: how far a cluster's observations agree is not known, so it counts once
        return _wilson(plain.value, total, groups, confidence)
    effect = max(1.0, groups / (groups - 1) * math.fsum(r * r for r in residuals.values()) / independent)
    return _wilson(plain.value, total, total / effect, confidence)


def mean(values: Sequence[float], confidence: float = 0.95) -> Estimate:
    """Return the mean with Student's t interval.

    One value has no interval (low = high = value). No value gives 0 with n = 0.
    """
    n = len(values)
    if n == 0:
        return Estimate(0.0, 0, 0.0, 0.0)
    centre = math.fsum(values) / n
    if n == 1:
        return Estimate(centre, 1, centre, centre)
    _check_confidence(confidence)
    variance = math.fsum((value - centre) ** 2 for value in values) / (n - 1)
    half = float(stdtrit(n - 1, (1 + confidence) / 2)) * math.sqrt(variance / n)
    return Estimate(centre, n, centre - half, centre + half)


def crossed_mean(rows: Sequence[Sequence[float]], confidence: float = 0.95) -> Estimate:
    """Return the mean of `rows[seed][game]` with an interval for further games *and* further seeds.

    n is the number of games. The variance is that of two-way clustering, (MS_games + MS_seeds) / cells, with
    the mean squares of the two-way table and Satterthwaite's degrees of freedom. It omits the term that
    subtracts the cells' own noise, because a few seeds cannot estimate it. With three seeds and 60 to 128
    games the interval covers 0.94 to 0.99; for paired differences over 200 games that vary between seeds
    with a standard deviation of 0.05 to 0.12, 0.93 to 0.95 with three seeds and 0.88 to 0.93 with two
    (simulated in its tests). An interval over games alone covers 0.94 if seeds are alike, and down to 0.58
    if seeds differ by 0.1 compared with 0.5 within a seed. One row has no variance between seeds: the
    interval is Student's t over its games and does not cover other seeds.

    Raises:
        ValueError: rows of different lengths.
    """
    if len({len(row) for row in rows}) > 1:
        raise ValueError(
            f"rows of {sorted({len(row) for row in rows})} values; expected the same games for each seed"
        )
    if len(rows) < 2 or not rows[0]:
        return mean(rows[0] if rows else [], confidence)
    _check_confidence(confidence)
    centre, error, freedom = _crossed_error(rows)
    half = float(stdtrit(freedom, (1 + confidence) / 2)) * error if error else 0.0
    return Estimate(centre, len(rows[0]), centre - half, centre + half)


def crossed_p_value(rows: Sequence[Sequence[float]]) -> float:
    """Return the two-sided p-value of the hypothesis that the mean of `rows[seed][game]` is 0.

    The variance is that of `crossed_mean`. With two or three rows that differ, small p-values are too
    frequent: over 200 games, with a standard deviation of 0.08 between seeds, a true hypothesis has p < 0.001
    in 2 % of cases with two seeds and in 0.7 % with three (simulated, docs/limits.md).

    The result is 1.0 if all values are 0 or if there is one value. Where all values are the same, it is that
    of the sign test over games, which needs no variance.
    """
    if not rows or len(rows) * len(rows[0]) < 2 or not any(map(any, rows)):
        return 1.0
    centre, error, freedom = _crossed_error(rows)
    if not error:
        return min(1.0, 2.0 ** (1 - len(rows[0])))
    return 2 * float(stdtr(freedom, -abs(centre) / error))


def crossed_ratio(
    numerators: Sequence[Sequence[float]], denominators: Sequence[Sequence[float]], confidence: float = 0.95
) -> Estimate:
    """Return the ratio of two means over the same `[seed][game]`, with the uncertainty of both.

    A ratio r is in Fieller's interval if the mean of `numerators - r * denominators`, cell by cell, does not
    differ from 0 by the interval of `crossed_mean`. So it counts that both were measured, and that good games
    are good for both. The high end is infinite if the mean of the denominators may be 0.

    Raises:
        ValueError: the shapes differ, a value is negative, or the denominators are all 0.
    """
    if [len(row) for row in numerators] != [len(row) for row in denominators]:
        raise ValueError("numerators and denominators of different shapes; expected the same seeds and games")
    if any(value < 0 for rows in (numerators, denominators) for row in rows for value in row):
        raise ValueError("a negative value; expected outcomes of at least 0")
    below = crossed_mean(denominators, confidence)
    if not below.value:
        raise ValueError("the denominators are all 0; their ratio is not defined")

    def rest(ratio: float) -> Estimate:
        rows = [
            [above - ratio * value for above, value in zip(*pair, strict=True)]
            for pair in zip(numerators, denominators, strict=True)
        ]
        return crossed_mean(rows, confidence)

    value = crossed_mean(numerators, confidence).value / below.value
    low = 0.0 if rest(0.0).low <= 0 else _boundary(0.0, value, lambda ratio: rest(ratio).low > 0)
    far = _FAR * (value or 1.0)
    high = math.inf if rest(far).high >= 0 else _boundary(value, far, lambda ratio: rest(ratio).high >= 0)
    return Estimate(value, below.n, low, high)


_FAR = 1e3
"""Times the ratio itself: a high end beyond it is called infinite."""


def _boundary(start: float, end: float, holds: Callable[[float], bool]) -> float:
    """Return where `holds`, true at `start` and false at `end`, changes."""
    for _ in range(60):
        middle = (start + end) / 2
        start, end = (middle, end) if holds(middle) else (start, middle)
    return start


def _crossed_error(rows: Sequence[Sequence[float]]) -> tuple[float, float, float]:
    """Return the mean, its standard error and the degrees of freedom.

    A factor (seeds, games) with a single level is left out.
    """
    seeds, games = len(rows), len(rows[0])
    centre = math.fsum(map(math.fsum, rows)) / (seeds * games)
    columns = zip(*rows, strict=True)
    factors = [
        (seeds * math.fsum((math.fsum(column) / seeds - centre) ** 2 for column in columns), games - 1),
        (games * math.fsum((math.fsum(row) / games - centre) ** 2 for row in rows), seeds - 1),
    ]
    mean_squares = [(total / freedom, freedom) for total, freedom in factors if freedom]
    sum_of_squares = math.fsum(square for square, _ in mean_squares)
    if sum_of_squares == 0:
        return centre, 0.0, 1.0
    return (
        centre,
        math.sqrt(sum_of_squares / (seeds * games)),
        sum_of_squares**2 / math.fsum(square**2 / freedom for square, freedom in mean_squares),
    )


def median(values: Sequence[float], confidence: float = 0.95) -> Estimate:
    """Return the median with the percentile interval of its bootstrap distribution.

    That distribution is computed exactly, without random draws. One value has no interval (low = high =
    value). No value gives 0 with n = 0.
    """
    n = len(values)
    ordered = sorted(values)
    if n == 0:
        return Estimate(0.0, 0, 0.0, 0.0)
    _check_confidence(confidence)
    tail = (1 - confidence) / 2
    # A sample's lower median is at most the k-th smallest value if more than (n - 1) // 2 of its n draws are.
    place = next(k for k in range(1, n + 1) if 1 - float(bdtr((n - 1) // 2, n, k / n)) > tail)
    return Estimate(float(statistics.median(ordered)), n, ordered[place - 1], ordered[n - place])


def fisher_one_sided_p_value(successes: int, n: int, earlier: int, earlier_n: int) -> float:
    """Return the one-sided p-value of Fisher's exact test (1935) that the success rate has fallen.

    It is the probability of `successes` or fewer of `n`, given `earlier` of `earlier_n`, if both samples have
    the same rate.
    """
    from scipy.stats import hypergeom  # the import takes a second, and few callers need it

    return float(hypergeom.cdf(successes, n + earlier_n, successes + earlier, n))


def _normal_quantile(confidence: float) -> float:
    _check_confidence(confidence)
    return NormalDist().inv_cdf((1 + confidence) / 2)


def _check_confidence(confidence: float) -> None:
    if not 0 < confidence < 1:
        raise ValueError(f"confidence is {confidence}; expected a number between 0 and 1, such as 0.95")
