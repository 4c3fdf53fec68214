"""Intervals against values computed by hand or printed in the sources."""

import math
import random
import statistics

import numpy as np
import pytest
import scipy.stats

from components.evaluation.metrics.intervals import (
    Estimate,
    clustered_proportion,
    crossed_mean,
    crossed_p_value,
    crossed_ratio,
    exact_value,
    fisher_one_sided_p_value,
    mean,
    median,
    proportion,
)
from components.evaluation.metrics.paired_outcomes import paired_difference


def test_wilson_interval_of_one_half_by_hand():
    # z = 1.959964, n = 10, p = 0.5: half = z / (1 + z2/n) * sqrt(0.025 + z2/400) with z2 = 3.841459
    z2 = 3.841459
    half = math.sqrt(z2) / (1 + z2 / 10) * math.sqrt(0.025 + z2 / 400)
    estimate = proportion(5, 10)
    assert estimate.value == 0.5
    assert (estimate.low, estimate.high) == pytest.approx((0.5 - half, 0.5 + half), abs=1e-6)
    assert (estimate.low, estimate.high) == pytest.approx((0.2366, 0.7634), abs=1e-4)


def test_wilson_matches_the_values_printed_by_newcombe():
    # Newcombe (1998), Statistics in Medicine 17:857, table I, method 3
    for successes, n, low, high in [
        (81, 263, 0.2553, 0.3662),
        (15, 148, 0.0624, 0.1605),
        (0, 20, 0.0, 0.1611),
        (1, 29, 0.0061, 0.1718),
    ]:
        estimate = proportion(successes, n)
        assert (estimate.low, estimate.high) == pytest.approx((low, high), abs=6e-5)


def test_without_observations_the_interval_is_the_whole_range():
    assert proportion(0, 0) == Estimate(0.0, 0, 0.0, 1.0)
    assert mean([]) == Estimate(0.0, 0, 0.0, 0.0)
    assert paired_difference([], []).to_json() == {"value": 0.0, "n": 0, "low": -1.0, "high": 1.0}


def test_impossible_counts_and_levels_are_refused():
    with pytest.raises(ValueError, match="5 successes of 4"):
        proportion(5, 4)
    with pytest.raises(ValueError, match="confidence is 95"):
        proportion(1, 4, confidence=95)
    with pytest.raises(ValueError, match="2 outcomes against 1"):
        paired_difference([True, False], [True])


def test_mean_uses_students_t():
    # mean 3, standard deviation sqrt(2.5), t(0.975, 4) = 2.776445
    half = 2.776445 * math.sqrt(2.5 / 5)
    estimate = mean([1, 2, 3, 4, 5])
    assert (estimate.value, estimate.n) == (3.0, 5)
    assert (estimate.low, estimate.high) == pytest.approx((3 - half, 3 + half), abs=1e-5)
    assert mean([7.0]) == Estimate(7.0, 1, 7.0, 7.0)


def test_a_higher_confidence_gives_a_wider_interval():
    assert proportion(30, 60, 0.99).low < proportion(30, 60, 0.95).low
    assert mean([1, 2, 4], 0.99).high > mean([1, 2, 4], 0.8).high


def test_json_has_the_four_keys():
    assert exact_value(12).to_json() == {"value": 12.0, "n": 1, "low": 12.0, "high": 12.0}
    assert set(paired_difference([True], [False]).to_json()) == {"value", "n", "low", "high"}


def test_equal_outcomes_in_a_cluster_count_as_one_observation():
    """Ten clusters of ten equal outcomes give the interval of ten observations; n is still 100.

    The variance has the small-sample factor 10/9.
    """
    outcomes = [cluster < 5 for cluster in range(10) for _ in range(10)]
    names = [str(cluster) for cluster in range(10) for _ in range(10)]
    share = clustered_proportion(outcomes, names)
    assert (share.value, share.n) == (0.5, 100)
    assert share.high - share.low > 0.9 * (proportion(5, 10).high - proportion(5, 10).low)


def test_clusters_of_one_observation_give_the_plain_interval():
    outcomes = [n % 4 != 0 for n in range(400)]
    each = clustered_proportion(outcomes, [str(n) for n in range(400)])
    plain = proportion(300, 400)
    assert (each.value, each.n) == (plain.value, plain.n)
    assert each.low == pytest.approx(plain.low, abs=1e-3) and each.high == pytest.approx(plain.high, abs=1e-3)
    assert clustered_proportion(outcomes, ["one"] * 400) == plain


def test_weights_are_numbers_of_observations():
    assert clustered_proportion([3, 1], ["a", "b"], weights=[4, 4]).value == 0.5
    assert clustered_proportion([3, 1], ["a", "b"], weights=[4, 4]).n == 8
    assert clustered_proportion([], []) == proportion(0, 0)
    alike = clustered_proportion([True] * 5, list("abcab"))
    assert (alike.n, alike.low, alike.high) == (5, proportion(3, 3).low, 1.0), "each cluster counts once"
    assert clustered_proportion([True] * 3, list("abc")) == proportion(3, 3)
    with pytest.raises(ValueError, match="expected equal counts"):
        clustered_proportion([True], [])


def test_clustered_intervals_cover_the_true_rate():
    """400 samples of 20 clusters of 15 observations, with rates from a Beta(2, 2).

    At least 92 % of the clustered intervals contain the mean; of the plain intervals less than 85 % do.
    """
    rng = random.Random(0)
    inside = {"clustered": 0, "plain": 0}
    for _ in range(400):
        rates = [rng.betavariate(2, 2) for _ in range(20)]
        outcomes = [rng.random() < rate for rate in rates for _ in range(15)]
        names = [str(n) for n in range(20) for _ in range(15)]
        for name, estimate in (
            ("clustered", clustered_proportion(outcomes, names)),
            ("plain", proportion(sum(outcomes), 300)),
        ):
            inside[name] += estimate.low <= 0.5 <= estimate.high
    assert inside["clustered"] >= 0.92 * 400 > 0.85 * 400 > inside["plain"]


def test_median_has_the_interval_of_its_bootstrap():
    """The exact interval equals the one of 20,000 random draws with replacement."""
    values = [2.0, 1.0, 5.0, 3.0, 8.0, 4.0, 9.0]
    estimate = median(values)
    rng = random.Random(0)
    drawn = sorted(statistics.median(rng.choices(values, k=7)) for _ in range(20_000))
    assert (estimate.value, estimate.n) == (4.0, 7)
    assert (estimate.low, estimate.high) == (drawn[500], drawn[-501]) == (2.0, 8.0)
    assert median([3.0]).to_json() == {"value": 3.0, "n": 1, "low": 3.0, "high": 3.0}
    assert median([]).n == 0


def test_a_mean_over_seeds_and_games_by_hand():
    estimate = crossed_mean([[1.0, 0.0, 1.0], [0.0, 0.0, 1.0]])
    # columns 0.5, 0, 1 and rows 2/3, 1/3 about 0.5: squares 2 * 0.5 / 2 and 3 * (2 / 36), over 6 cells
    error = ((0.5 + 1 / 6) / 6) ** 0.5
    freedom = (0.5 + 1 / 6) ** 2 / (0.5**2 / 2 + (1 / 6) ** 2)
    assert (estimate.value, estimate.n) == (0.5, 3)
    assert (
        estimate.high - 0.5
        == pytest.approx(0.5 - estimate.low)
        == pytest.approx(scipy.stats.t.ppf(0.975, freedom) * error)
    )
    assert crossed_p_value([[1.0, 0.0, 1.0], [0.0, 0.0, 1.0]]) == pytest.approx(
        2 * scipy.stats.t.sf(0.5 / error, freedom)
    )


def test_a_ratio_of_one_seed_is_fiellers_by_hand():
    """The ends are the roots of (mean_a - r mean_b)^2 = t^2 (var_a - 2 r cov + r^2 var_b) / n."""
    above, below = [1.0, 0.0, 1.0, 1.0, 0.0, 1.0, 1.0, 1.0], [1.0, 1.0, 1.0, 1.0, 0.0, 1.0, 1.0, 0.0]
    n, quantile = len(above), scipy.stats.t.ppf(0.975, 7)
    mean_a, mean_b = sum(above) / n, sum(below) / n
    (var_a, cov), (_, var_b) = np.cov(above, below)
    factor = quantile**2 / n
    low, high = np.sort(
        np.roots(
            [
                mean_b**2 - factor * var_b,
                -2 * (mean_a * mean_b - factor * cov),
                mean_a**2 - factor * var_a,
            ]
        )
    )
    ratio = crossed_ratio([above], [below])
    assert (ratio.value, ratio.n) == (1.0, 8)
    assert (ratio.low, ratio.high) == (pytest.approx(low), pytest.approx(high))


def test_a_ratio_counts_the_uncertainty_of_both_sides():
    rng = np.random.default_rng(0)
    covered, runs = 0, 200
    for _ in range(runs):
        games = rng.normal(0, 0.15, 60)
        rates = (0.6 + rng.normal(0, 0.04, (3, 1)) + games, 0.75 + rng.normal(0, 0.04, (3, 1)) + games)
        above, below = ((rng.random((3, 60)) < rate).astype(float).tolist() for rate in rates)
        ratio = crossed_ratio(above, below)
        covered += ratio.low <= 0.8 <= ratio.high
    assert covered / runs >= 0.93, "the interval covers the true ratio"
    difference = crossed_mean(np.subtract(above, below).tolist())
    base_alone = (difference.high - difference.low) / crossed_mean(below).value
    assert ratio.high - ratio.low != pytest.approx(base_alone, rel=1e-3)


def test_ratios_without_an_interval():
    outcomes = [[1.0, 0.0, 1.0, 1.0], [1.0, 1.0, 1.0, 0.0]]
    same = crossed_ratio(outcomes, outcomes)
    assert (same.value, same.low, same.high) == (1.0, pytest.approx(1.0), pytest.approx(1.0))
    nothing = crossed_ratio([[0.0] * 4] * 2, outcomes)
    assert (nothing.value, nothing.low, nothing.high) == (0.0, 0.0, pytest.approx(0.0, abs=1e-9))
    assert crossed_ratio(outcomes, [[1.0, 0.0, 0.0, 0.0], [0.0] * 4]).high == math.inf
    for below, problem in (
        ([[0.0] * 4] * 2, "all 0"),
        ([[1.0] * 3] * 2, "shapes"),
        ([[-1.0] * 4] * 2, "neg"),
    ):
        with pytest.raises(ValueError, match=problem):
            crossed_ratio(outcomes, below)


def test_one_seed_gives_a_plain_mean():
    assert (
        crossed_mean([[0.2, 0.4, 0.9]]) == mean([0.2, 0.4, 0.9])
        and crossed_mean([]).n == crossed_mean([[], []]).n == 0
    )
    assert crossed_mean([[0.5], [0.5]]).low == 0.5
    assert crossed_p_value([[0.0, 0.0]]) == crossed_p_value([[1.0]]) == crossed_p_value([]) == 1.0
    assert crossed_p_value([[1.0, 1.0]]) == 0.5, "the sign test of two games"
    with pytest.raises(ValueError, match="same games for each seed"):
        crossed_mean([[1.0], [1.0, 0.0]])


@pytest.mark.parametrize("spread", [0.0, 0.05, 0.1])
def test_the_crossed_interval_covers_the_true_mean(spread):
    draws = np.random.default_rng(0)
    covered = 0
    for _ in range(400):
        rows = (
            draws.normal(0, spread, (3, 1)) + draws.normal(0, 0.15, (1, 60)) + draws.normal(0, 0.45, (3, 60))
        )
        estimate = crossed_mean(rows.tolist())
        covered += estimate.low <= 0 <= estimate.high
    assert covered / 400 >= 0.93


def test_fisher_p_value_equals_scipys():
    for successes, n, earlier, earlier_n in [
        (6, 12, 16, 16),
        (0, 4, 0, 5),
        (3, 3, 1, 4),
        (12, 16, 15, 16),
        (2, 9, 30, 32),
    ]:
        table = [[successes, n - successes], [earlier, earlier_n - earlier]]
        assert fisher_one_sided_p_value(successes, n, earlier, earlier_n) == pytest.approx(
            scipy.stats.fisher_exact(table, alternative="less").pvalue
        )
    assert fisher_one_sided_p_value(3, 8, 0, 0) == 1.0, "no earlier observations"


@pytest.mark.parametrize(
    ("seeds", "deviation", "low", "high"),
    [
        (2, 0.0, 0.96, 1.0),
        (2, 0.05, 0.90, 0.95),
        (2, 0.12, 0.85, 0.90),
        (3, 0.05, 0.93, 0.975),
        (3, 0.12, 0.90, 0.95),
    ],
)
def test_how_often_an_interval_of_few_seeds_covers_a_difference_of_zero(seeds, deviation, low, high):
    """Paired differences of two equal methods over 200 games, one of them shifted at random in each seed."""
    rng = random.Random(0)
    covered = 0
    for _ in range(1000):
        rates = [rng.random() for _ in range(200)]
        shifts = [rng.gauss(0, deviation) for _ in range(seeds)]
        rows = [
            [float(rng.random() < rate + shift) - float(rng.random() < rate) for rate in rates]
            for shift in shifts
        ]
        interval = crossed_mean(rows)
        covered += interval.low <= 0 <= interval.high
    assert low <= covered / 1000 <= high
