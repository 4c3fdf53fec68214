"""The bootstrap over seeds and games: cases by hand, the analytic intervals, refused tables."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.stats import binom

from components.evaluation.metrics.intervals import Estimate, crossed_mean, crossed_ratio
from components.evaluation.study.crossed_bootstrap import bootstrap_difference, bootstrap_ratio


def test_of_equal_seeds_only_the_drawn_games_matter():
    """The number of drawn games that were won is binomial, so the interval's ends are its quantiles."""
    won = [1.0] * 30 + [0.0] * 70
    estimate = bootstrap_difference([won] * 3, [[0.0] * 100] * 3)
    low, high = binom.ppf([0.025, 0.975], 100, 0.3) / 100
    assert (estimate.value, estimate.n) == (0.3, 100)
    assert (estimate.low, estimate.high) == (pytest.approx(low, abs=0.011), pytest.approx(high, abs=0.011))


def test_of_equal_games_only_the_drawn_seeds_matter():
    """One draw of three seeds in 27 is the worst alone, more than 2.5 %: the ends are the worst and best."""
    rows = [[0.2] * 50, [0.5] * 50, [0.8] * 50]
    estimate = bootstrap_difference(rows, [[0.0] * 50] * 3)
    assert estimate.value == pytest.approx(0.5)
    assert (estimate.low, estimate.high) == (pytest.approx(0.2), pytest.approx(0.8))


def test_pairs_stay_pairs():
    rows = np.random.default_rng(0).integers(0, 2, (3, 40)).astype(float).tolist()
    assert bootstrap_difference(rows, rows) == Estimate(0.0, 40, 0.0, 0.0)
    same = bootstrap_ratio(rows, rows)
    assert (same.value, same.low, same.high) == (1.0, 1.0, 1.0)


def test_the_interval_agrees_with_the_analytic_one_where_seeds_are_alike():
    rng = np.random.default_rng(0)
    games = rng.random(200)
    above = [(games < 0.66).astype(float).tolist()] * 3
    below = [(rng.permutation(games) < 0.5).astype(float).tolist()] * 3
    differences = np.subtract(above, below).tolist()
    for found, expected in (
        (bootstrap_difference(above, below), crossed_mean(differences)),
        (bootstrap_ratio(above, below), crossed_ratio(above, below)),
    ):
        assert found.value == pytest.approx(expected.value)
        assert found.low == pytest.approx(expected.low, abs=0.02)
        assert found.high == pytest.approx(expected.high, abs=0.03)
        assert found.low < found.value < found.high


def test_the_same_input_gives_the_same_interval_and_seeds_that_differ_a_wider_one():
    rng = np.random.default_rng(1)
    games = rng.random((1, 200))
    alike, differing = (
        (games < 0.5 + np.array(shift)[:, None]).astype(float).tolist()
        for shift in ([0, 0, 0], [-0.2, 0, 0.2])
    )
    base = [[0.0] * 200] * 3
    narrow, wide = bootstrap_difference(alike, base), bootstrap_difference(differing, base)
    assert narrow == bootstrap_difference(alike, base)
    assert wide.high - wide.low > 1.3 * (narrow.high - narrow.low)


def test_a_ratio_may_be_unbounded_and_tables_are_refused():
    rare = [1.0] + [0.0] * 39
    assert bootstrap_ratio([[1.0] * 40], [rare]).high == math.inf
    for above, below, problem in (
        ([[1.0, 0.0]], [[1.0]], "same games"),
        ([[1.0], [1.0, 0.0]], [[1.0], [1.0, 0.0]], "same games"),
        ([], [], "same games"),
        ([[1.0, 0.0]], [[0.0, 0.0]], "all 0"),
    ):
        with pytest.raises(ValueError, match=problem):
            bootstrap_ratio(above, below)
    with pytest.raises(ValueError, match="confidence is 95"):
        bootstrap_difference([[1.0, 0.0]], [[0.0, 0.0]], confidence=95)
