"""Bootstrap intervals over seeds and games, for the difference and the ratio of two methods.

Seeds and games are redrawn with replacement, independently of each other: Owen (2007), "The pigeonhole
bootstrap", Ann. Appl. Stat. 1:386. All seeds have the same games, and both methods the same seeds and games,
so a drawn seed or game is drawn for both. The interval has the percentiles of the draws.

It assumes no distribution, unlike `crossed_mean` and `crossed_ratio`. But the variance between S seeds is too
small by (S - 1) / S, and few seeds do not widen its tails. So it is a second opinion: what one of the two
intervals does not show is not shown. Draws are seeded: the same input always gives the same interval.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from components.evaluation.metrics.intervals import Estimate

DRAWS = 10_000
SEED = 0
Rows = Sequence[Sequence[float]]
"""One row per seed with the outcomes of the same games."""


def bootstrap_difference(method: Rows, base: Rows, confidence: float = 0.95) -> Estimate:
    """Return the mean of `method[seed][game] - base[seed][game]` with its bootstrap interval.

    n is the number of games. With one seed the interval covers further games alone.

    Raises:
        ValueError: the shapes differ, or there is no value.
    """
    above, below = _tables(method, base)
    draws = _drawn_means(above - below)
    return _with_percentiles(float((above - below).mean()), above.shape[1], draws, confidence)


def bootstrap_ratio(numerators: Rows, denominators: Rows, confidence: float = 0.95) -> Estimate:
    """Return the ratio of the means of two tables of outcomes with its bootstrap interval.

    n is the number of games. A draw whose denominators are all 0 counts as infinite.

    Raises:
        ValueError: the shapes differ, there is no value, or the denominators are all 0.
    """
    above, below = _tables(numerators, denominators)
    if not below.any():
        raise ValueError("the denominators are all 0; their ratio is not defined")
    drawn_above, drawn_below = _drawn_means(above), _drawn_means(below)
    ratios = np.full(DRAWS, np.inf)
    np.divide(drawn_above, drawn_below, out=ratios, where=drawn_below > 0)
    return _with_percentiles(float(above.mean() / below.mean()), above.shape[1], ratios, confidence)


def _tables(method: Rows, base: Rows) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    shapes = [[len(row) for row in rows] for rows in (method, base)]
    if shapes[0] != shapes[1] or len(set(shapes[0])) != 1 or not shapes[0][0]:
        raise ValueError(f"rows of {shapes[0]} and {shapes[1]} values; expected the same games for each seed")
    return np.array(method, dtype=float), np.array(base, dtype=float)


def _drawn_means(table: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the mean of each draw. Tables of one shape get the same draws, so that pairs stay pairs."""
    seeds, games = table.shape
    generator = np.random.default_rng(SEED)
    seed_counts = generator.multinomial(seeds, [1 / seeds] * seeds, size=DRAWS)
    game_counts = generator.multinomial(games, [1 / games] * games, size=DRAWS)
    means: NDArray[np.float64] = ((seed_counts @ table) * game_counts).sum(axis=1) / table.size
    return means


def _with_percentiles(value: float, n: int, draws: NDArray[np.float64], confidence: float) -> Estimate:
    if not 0 < confidence < 1:
        raise ValueError(f"confidence is {confidence}; expected a number between 0 and 1, such as 0.95")
    tail = (1 - confidence) / 2
    low, high = np.quantile(draws, [tail, 1 - tail], method="inverted_cdf")
    return Estimate(value, n, float(low), float(high))
