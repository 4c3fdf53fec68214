"""Numbers that carry their n and an interval: proportions, means, and differences of success on the same
games.

Sources: Wilson (1927) for a proportion, at the effective sample size where observations come in clusters;
Student's t for a mean; Cameron, Gelbach and Miller (2011), J. Bus. Econ. Stat. 29:238, with Satterthwaite's
(1946) degrees of freedom, for a mean over seeds and games at once; Maritz and Jarrett (1978), JASA 73:194,
for a median; Newcombe (1998), Statistics in Medicine 17:2635, method 10, for a difference of paired
proportions; the exact (binomial) test of McNemar (1947) for its p-value; Cohen (1960) for agreement beyond
chance. No random numbers: the same input always gives the same interval.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import NormalDist
from statistics import median as middle
from typing import Any

from scipy.special import bdtr, stdtr, stdtrit


@dataclass(frozen=True)
class Estimate:
    """A value, the number of observations behind it, and the ends of its confidence interval, in the unit of
    the value.
    """

    value: float
    n: int
    low: float
    high: float

    def to_json(self) -> dict[str, float | int]:
        """The four keys of every entry of metrics.json."""
        return {"value": self.value, "n": self.n, "low": self.low, "high": self.high}

    @classmethod
    def from_json(cls, entry: Mapping[str, Any]) -> Estimate:
        """Back from an entry of metrics.json."""
        return Estimate(entry["value"], int(entry["n"]), entry["low"], entry["high"])

    def __str__(self) -> str:
        return f"{self.value:.3f} (n={self.n}, {self.low:.3f} to {self.high:.3f})"


@dataclass(frozen=True)
class PairedDifference(Estimate):
    """Difference of two success rates on the same games.

    `gained` games were won by the first alone and `lost` by the second alone; `p_value` is McNemar's exact
    two-sided one.
    """

    p_value: float
    gained: int
    lost: int


def exact(value: float) -> Estimate:
    """A count or another number that has no uncertainty: n is 1 and the interval is the value itself."""
    return Estimate(float(value), 1, float(value), float(value))


def proportion(successes: int, n: int, confidence: float = 0.95) -> Estimate:
    """Share of successes with the Wilson interval; of nothing (n = 0) it is 0 with the interval 0 to 1:
    nothing is known.

    Raises:
        ValueError: not 0 <= successes <= n, or confidence not inside (0, 1).
    """
    if not 0 <= successes <= n:
        raise ValueError(f"{successes} successes of {n}; expected 0 <= successes <= n")
    if n == 0:
        return Estimate(0.0, 0, 0.0, 1.0)
    return _wilson(successes / n, n, n, confidence)


def _wilson(p: float, n: int, effective: float, confidence: float) -> Estimate:
    z = _normal_quantile(confidence)
    centre = (p + z * z / (2 * effective)) / (1 + z * z / effective)
    half = (
        z / (1 + z * z / effective) * math.sqrt(p * (1 - p) / effective + z * z / (4 * effective * effective))
    )
    return Estimate(p, n, 0.0 if p == 0 else centre - half, 1.0 if p == 1 else centre + half)


def clustered_proportion(
    successes: Sequence[int],
    clusters: Sequence[str],
    confidence: float = 0.95,
    weights: Sequence[int] | None = None,
) -> Estimate:
    """Share of successes where observations of one cluster (the steps of a task's episodes) resemble each
    other.

    The Wilson interval at the effective sample size n / d, where d is the design effect: the variance of the
    ratio estimator between clusters (Cochran 1977, section 9A.1) over that of independent observations, at
    least 1. The n given back is the number of observations.

    Args:
        weights: observations behind each entry (facts of a state), of which `successes` count; None: one
            each.

    Raises:
        ValueError: sequences of different lengths.
    """
    sizes = [1] * len(successes) if weights is None else list(weights)
    if not len(successes) == len(clusters) == len(sizes):
        raise ValueError(
            f"{len(successes)} outcomes, {len(clusters)} clusters, {len(sizes)} weights; expected as many"
        )
    total, won = sum(sizes), int(sum(successes))
    plain = proportion(won, total, confidence)
    residuals: dict[str, float] = {}
    for success, cluster, size in zip(successes, clusters, sizes, strict=True):
        residuals[cluster] = residuals.get(cluster, 0.0) + success - plain.value * size
    groups, independent = len(residuals), total * plain.value * (1 - plain.value)
    if groups < 2 or independent == 0:
        return plain
    effect = max(1.0, groups / (groups - 1) * math.fsum(r * r for r in residuals.values()) / independent)
    return _wilson(plain.value, total, total / effect, confidence)


def mean(values: Sequence[float], confidence: float = 0.95) -> Estimate:
    """Mean with Student's t interval. One value has no interval (low = high = value); none at all gives 0
    with n = 0.
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
    """Mean of `rows[seed][game]` with an interval for further games *and* further seeds; its n is the number
    of games.

    The variance is that of two-way clustering without the term that takes the cells' own noise back, which
    few seeds cannot carry: (MS_games + MS_seeds) / cells, mean squares of the two-way table, with
    Satterthwaite's degrees of freedom. With three seeds and 60 to 128 games it covers 0.94 to 0.99 where an
    interval over games alone covers 0.94 (seeds alike) down to 0.58 (seeds that differ by 0.1 beside 0.5
    within them). One row has no spread of seeds: Student's t over its games, which knows nothing of other
    seeds.

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
    centre, error, freedom = _crossed(rows)
    half = float(stdtrit(freedom, (1 + confidence) / 2)) * error if error else 0.0
    return Estimate(centre, len(rows[0]), centre - half, centre + half)


def crossed_p_value(rows: Sequence[Sequence[float]]) -> float:
    """Two-sided p that the mean of `rows[seed][game]` is 0, by `crossed_mean`'s variance; 1.0 where all
    values are 0 or there is one.
    """
    if not rows or len(rows) * len(rows[0]) < 2 or not any(map(any, rows)):
        return 1.0
    centre, error, freedom = _crossed(rows)
    return 2 * float(stdtr(freedom, -abs(centre) / error)) if error else 0.0


def _crossed(rows: Sequence[Sequence[float]]) -> tuple[float, float, float]:
    """Mean, its standard error, and the degrees of freedom; a side (seeds, games) of one alone does not
    count.
    """
    seeds, games = len(rows), len(rows[0])
    centre = math.fsum(map(math.fsum, rows)) / (seeds * games)
    sides = [
        (
            seeds
            * math.fsum((math.fsum(column) / seeds - centre) ** 2 for column in zip(*rows, strict=True)),
            games - 1,
        ),
        (games * math.fsum((math.fsum(row) / games - centre) ** 2 for row in rows), seeds - 1),
    ]
    squares = [(total / freedom, freedom) for total, freedom in sides if freedom]
    whole = math.fsum(square for square, _ in squares)
    if whole == 0:
        return centre, 0.0, 1.0
    return (
        centre,
        math.sqrt(whole / (seeds * games)),
        whole**2 / math.fsum(square**2 / freedom for square, freedom in squares),
    )


def median(values: Sequence[float], confidence: float = 0.95) -> Estimate:
    """Median with the percentile interval of its bootstrap distribution, which is known exactly: nothing is
    drawn.

    One value has no interval (low = high = value); none at all gives 0 with n = 0.
    """
    n, ordered = len(values), sorted(values)
    if n == 0:
        return Estimate(0.0, 0, 0.0, 0.0)
    _check_confidence(confidence)
    tail = (1 - confidence) / 2
    # A sample's lower median is at most the k-th smallest value if more than (n - 1) // 2 of its n draws are.
    place = next(k for k in range(1, n + 1) if 1 - float(bdtr((n - 1) // 2, n, k / n)) > tail)
    return Estimate(float(middle(ordered)), n, ordered[place - 1], ordered[n - place])


def paired_difference(a: Sequence[bool], b: Sequence[bool], confidence: float = 0.95) -> PairedDifference:
    """Success rate of `a` minus that of `b`, where `a[i]` and `b[i]` are outcomes of the same game.

    Raises:
        ValueError: different lengths, or confidence not inside (0, 1).
    """
    if len(a) != len(b):
        raise ValueError(f"{len(a)} outcomes against {len(b)}; expected pairs of the same games")
    n = len(a)
    if n == 0:
        return PairedDifference(0.0, 0, -1.0, 1.0, 1.0, 0, 0)
    both = sum(x and y for x, y in zip(a, b, strict=True))
    gained, lost = sum(a) - both, sum(b) - both
    low, high = _newcombe(both, gained, lost, n - both - gained - lost, confidence)
    return PairedDifference((gained - lost) / n, n, low, high, mcnemar(gained, lost), gained, lost)


def mcnemar(gained: int, lost: int) -> float:
    """Exact two-sided p-value that games won by one side alone fall on either side with equal chance."""
    total = gained + lost
    tail = sum(math.comb(total, k) for k in range(min(gained, lost) + 1))
    return min(1.0, 2 * tail / 2**total)


def fisher_fewer(successes: int, n: int, earlier: int, earlier_n: int) -> float:
    """One-sided p-value that `successes` of `n` are as few or fewer beside `earlier` of `earlier_n` if both
    have one rate (Fisher 1935).
    """
    from scipy.stats import hypergeom  # takes a second to import, and few ask

    return float(hypergeom.cdf(successes, n + earlier_n, successes + earlier, n))


def cohen_kappa(a: Sequence[bool], b: Sequence[bool], confidence: float = 0.95) -> Estimate:
    """Agreement of two judges beyond chance (Cohen 1960): 1 always, 0 as often as by chance; `a[i]` and
    `b[i]` judge the same thing.

    The interval is Wilson's of the observed agreement, with the agreement by chance taken as known: it covers
    at least 95 % also at n = 30 and with rare verdicts, where the asymptotic one (Fleiss, Cohen & Everitt
    1969) falls below 75 %. Where both judges always say the same one thing, kappa is not defined: 0 with the
    interval -1 to 1, nothing is known.

    Raises:
        ValueError: different lengths, or confidence not inside (0, 1).
    """
    if len(a) != len(b):
        raise ValueError(f"{len(a)} verdicts against {len(b)}; expected pairs about the same things")
    n = len(a)
    agreed = proportion(sum(x == y for x, y in zip(a, b, strict=True)), n, confidence)
    chance = (sum(a) * sum(b) + (n - sum(a)) * (n - sum(b))) / n**2 if n else 1.0
    if chance == 1:
        return Estimate(0.0, n, -1.0, 1.0)
    value, low, high = ((share - chance) / (1 - chance) for share in (agreed.value, agreed.low, agreed.high))
    return Estimate(value, n, max(-1.0, low), high)


def _newcombe(both: int, gained: int, lost: int, neither: int, confidence: float) -> tuple[float, float]:
    n = both + gained + lost + neither
    first, second = proportion(both + gained, n, confidence), proportion(both + lost, n, confidence)
    phi = _phi(both, gained, lost, neither)
    down = _root(first.value - first.low, second.high - second.value, phi)
    up = _root(first.high - first.value, second.value - second.low, phi)
    difference = (gained - lost) / n
    return max(-1.0, difference - down), min(1.0, difference + up)


def _root(x: float, y: float, phi: float) -> float:
    return math.sqrt(max(0.0, x * x - 2 * phi * x * y + y * y))


def _phi(both: int, gained: int, lost: int, neither: int) -> float:
    """Correlation of the pairs, a positive one with the continuity correction of method 10; 0 where it is
    undefined.
    """
    margins = (both + gained) * (lost + neither) * (both + lost) * (gained + neither)
    if margins == 0:
        return 0.0
    product = both * neither - gained * lost
    corrected = max(product - (both + gained + lost + neither) / 2, 0.0) if product > 0 else float(product)
    return corrected / math.sqrt(margins)


def _normal_quantile(confidence: float) -> float:
    _check_confidence(confidence)
    return NormalDist().inv_cdf((1 + confidence) / 2)


def _check_confidence(confidence: float) -> None:
    if not 0 < confidence < 1:
        raise ValueError(f"confidence is {confidence}; expected a number between 0 and 1, such as 0.95")
