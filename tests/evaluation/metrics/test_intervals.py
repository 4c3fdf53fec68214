"""Intervals against values worked out by hand or printed in their sources."""

import math
import random
import statistics

import numpy as np
import pytest
import scipy.stats

from components.evaluation.metrics.intervals import (
    Estimate,
    clustered_proportion,
    cohen_kappa,
    crossed_mean,
    crossed_p_value,
    exact,
    fisher_fewer,
    mcnemar,
    mean,
    median,
    paired_difference,
    proportion,
)


def outcomes(both, gained, lost, neither):
    a = [True] * (both + gained) + [False] * (lost + neither)
    b = [True] * both + [False] * gained + [True] * lost + [False] * neither
    return a, b


def test_wilson_of_a_half_is_worked_out_by_hand():
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


def test_nothing_observed_means_nothing_known():
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


def test_more_confidence_is_a_wider_interval():
    assert proportion(30, 60, 0.99).low < proportion(30, 60, 0.95).low
    assert mean([1, 2, 4], 0.99).high > mean([1, 2, 4], 0.8).high


def test_paired_interval_worked_out_by_hand():
    # 36 won by both, 12 by the first alone, 2 by the second alone, 0 by neither: ad - bc = -24, so phi is not
    # corrected
    first, second = proportion(48, 50), proportion(38, 50)
    phi = -24 / math.sqrt(48 * 2 * 38 * 12)
    dl1, du1 = first.value - first.low, first.high - first.value
    dl2, du2 = second.value - second.low, second.high - second.value
    difference = paired_difference(*outcomes(36, 12, 2, 0))
    assert difference.value == pytest.approx(0.2)
    assert difference.low == pytest.approx(0.2 - math.sqrt(dl1**2 - 2 * phi * dl1 * du2 + du2**2))
    assert difference.high == pytest.approx(0.2 + math.sqrt(du1**2 - 2 * phi * du1 * dl2 + dl2**2))
    assert (difference.low, difference.high) == pytest.approx(
        (0.0569, 0.3404), abs=1e-4
    )  # as printed by Newcombe


def test_a_positive_correlation_is_corrected_for_continuity():
    # ad - bc = 19*19 - 1*11 = 350, less n/2 = 25
    difference = paired_difference(*outcomes(19, 11, 1, 19))
    assert difference.low < 0.2 < difference.high
    uncorrected_phi, corrected_phi = (value / math.sqrt(30 * 20 * 20 * 30) for value in (350, 325))
    dl1, du2 = proportion(30, 50).value - proportion(30, 50).low, proportion(20, 50).high - 0.4
    assert difference.low == pytest.approx(0.2 - math.sqrt(dl1**2 - 2 * corrected_phi * dl1 * du2 + du2**2))
    assert difference.low != pytest.approx(0.2 - math.sqrt(dl1**2 - 2 * uncorrected_phi * dl1 * du2 + du2**2))


def test_paired_is_antisymmetric_and_counts_the_discordant_games():
    a, b = outcomes(10, 7, 2, 5)
    forth, back = paired_difference(a, b), paired_difference(b, a)
    assert (forth.gained, forth.lost) == (7, 2) == (back.lost, back.gained)
    assert (forth.value, forth.low, forth.high) == pytest.approx((-back.value, -back.high, -back.low))
    assert forth.p_value == back.p_value


def test_mcnemar_by_hand():
    assert mcnemar(5, 0) == pytest.approx(2 / 32)
    assert mcnemar(7, 2) == pytest.approx(2 * (1 + 9 + 36) / 512)
    assert mcnemar(3, 3) == 1.0
    assert mcnemar(0, 0) == 1.0


def test_equal_outcomes_differ_by_nothing():
    difference = paired_difference([True, False] * 8, [True, False] * 8)
    assert difference.value == 0.0
    assert difference.low < 0 < difference.high
    assert difference.p_value == 1.0


def test_json_has_the_four_keys():
    assert exact(12).to_json() == {"value": 12.0, "n": 1, "low": 12.0, "high": 12.0}
    assert set(paired_difference([True], [False]).to_json()) == {"value", "n", "low", "high"}


def test_observations_of_one_cluster_that_agree_count_as_one():
    """Ten clusters of ten equal outcomes: as wide as ten observations (times the small-sample factor 10/9), n
    is still 100.
    """
    outcomes = [cluster < 5 for cluster in range(10) for _ in range(10)]
    names = [str(cluster) for cluster in range(10) for _ in range(10)]
    found = clustered_proportion(outcomes, names)
    assert (found.value, found.n) == (0.5, 100)
    assert found.high - found.low > 0.9 * (proportion(5, 10).high - proportion(5, 10).low)


def test_independent_clusters_change_nothing():
    outcomes = [n % 4 != 0 for n in range(400)]
    each = clustered_proportion(outcomes, [str(n) for n in range(400)])
    plain = proportion(300, 400)
    assert (each.value, each.n) == (plain.value, plain.n)
    assert each.low == pytest.approx(plain.low, abs=1e-3) and each.high == pytest.approx(plain.high, abs=1e-3)
    assert clustered_proportion(outcomes, ["one"] * 400) == plain


def test_weights_count_observations_and_ends_are_kept():
    assert clustered_proportion([3, 1], ["a", "b"], weights=[4, 4]).value == 0.5
    assert clustered_proportion([3, 1], ["a", "b"], weights=[4, 4]).n == 8
    assert clustered_proportion([], []) == proportion(0, 0)
    assert clustered_proportion([True] * 5, list("abcab")) == proportion(5, 5)
    with pytest.raises(ValueError, match="expected as many"):
        clustered_proportion([True], [])


def test_clustered_intervals_cover_what_they_should():
    """400 samples of 20 clusters of 15 with rates from a Beta(2, 2): nearly all intervals hold the mean, of
    the plain ones too few.
    """
    rng = random.Random(0)
    inside = {"clustered": 0, "plain": 0}
    for _ in range(400):
        rates = [rng.betavariate(2, 2) for _ in range(20)]
        outcomes = [rng.random() < rate for rate in rates for _ in range(15)]
        names = [str(n) for n in range(20) for _ in range(15)]
        for name, found in (
            ("clustered", clustered_proportion(outcomes, names)),
            ("plain", proportion(sum(outcomes), 300)),
        ):
            inside[name] += found.low <= 0.5 <= found.high
    assert inside["clustered"] >= 0.92 * 400 > 0.85 * 400 > inside["plain"]


def test_kappa_is_agreement_beyond_chance():
    a = [True] * 45 + [False] * 15 + [True] * 25 + [False] * 15
    b = [True] * 45 + [False] * 15 + [False] * 25 + [True] * 15
    found = cohen_kappa(a, b)
    assert found.value == pytest.approx((0.6 - 0.54) / 0.46)  # 60 agree; by chance 0.7 * 0.6 + 0.3 * 0.4
    assert found.n == 100 and found.low < 0 < found.value < found.high < 0.4
    assert cohen_kappa([True, False] * 20, [True, False] * 20).value == 1
    assert cohen_kappa([True, False] * 20, [False, True] * 20).value == -1


def test_kappa_of_judges_who_never_differ_in_what_they_say_is_unknown():
    for verdicts in ([], [True] * 30, [False] * 30):
        found = cohen_kappa(verdicts, verdicts)
        assert (found.value, found.n, found.low, found.high) == (0.0, len(verdicts), -1.0, 1.0)
    with pytest.raises(ValueError, match="1 verdicts against 2"):
        cohen_kappa([True], [True, False])


@pytest.mark.parametrize(
    ("best", "flipped", "n"), [(0.5, 0.1, 30), (0.9, 0.05, 30), (0.8, 0.2, 100), (0.95, 0.02, 100)]
)
def test_the_interval_of_kappa_covers_it(best, flipped, n):
    rng = random.Random(0)
    judge = best * (1 - flipped) + (1 - best) * flipped
    chance = judge * best + (1 - judge) * (1 - best)
    kappa, covered, draws = (1 - flipped - chance) / (1 - chance), 0, 600
    for _ in range(draws):
        truth = [rng.random() < best for _ in range(n)]
        found = cohen_kappa([value != (rng.random() < flipped) for value in truth], truth)
        covered += found.low <= kappa <= found.high
    assert covered / draws > 0.93


def test_median_has_the_interval_of_its_bootstrap():
    """Exactly what drawing with replacement comes to."""
    values = [2.0, 1.0, 5.0, 3.0, 8.0, 4.0, 9.0]
    found = median(values)
    rng = random.Random(0)
    drawn = sorted(statistics.median(rng.choices(values, k=7)) for _ in range(20_000))
    assert (found.value, found.n) == (4.0, 7)
    assert (found.low, found.high) == (drawn[500], drawn[-501]) == (2.0, 8.0)
    assert median([3.0]).to_json() == {"value": 3.0, "n": 1, "low": 3.0, "high": 3.0}
    assert median([]).n == 0


def test_a_mean_over_seeds_and_games_by_hand():
    found = crossed_mean([[1.0, 0.0, 1.0], [0.0, 0.0, 1.0]])
    # columns 0.5, 0, 1 and rows 2/3, 1/3 about 0.5: squares 2 * 0.5 / 2 and 3 * (2 / 36), over 6 cells
    error = ((0.5 + 1 / 6) / 6) ** 0.5
    freedom = (0.5 + 1 / 6) ** 2 / (0.5**2 / 2 + (1 / 6) ** 2)
    assert (found.value, found.n) == (0.5, 3)
    assert (
        found.high - 0.5
        == pytest.approx(0.5 - found.low)
        == pytest.approx(scipy.stats.t.ppf(0.975, freedom) * error)
    )
    assert crossed_p_value([[1.0, 0.0, 1.0], [0.0, 0.0, 1.0]]) == pytest.approx(
        2 * scipy.stats.t.sf(0.5 / error, freedom)
    )


def test_one_seed_or_none_is_a_plain_mean():
    assert (
        crossed_mean([[0.2, 0.4, 0.9]]) == mean([0.2, 0.4, 0.9])
        and crossed_mean([]).n == crossed_mean([[], []]).n == 0
    )
    assert crossed_mean([[0.5], [0.5]]).low == 0.5
    assert crossed_p_value([[0.0, 0.0]]) == crossed_p_value([[1.0]]) == crossed_p_value([]) == 1.0
    assert crossed_p_value([[1.0, 1.0]]) == 0.0
    with pytest.raises(ValueError, match="same games for each seed"):
        crossed_mean([[1.0], [1.0, 0.0]])


@pytest.mark.parametrize("spread", [0.0, 0.05, 0.1])
def test_an_interval_over_seeds_covers_what_it_says(spread):
    draws = np.random.default_rng(0)
    covered = 0
    for _ in range(400):
        rows = (
            draws.normal(0, spread, (3, 1)) + draws.normal(0, 0.15, (1, 60)) + draws.normal(0, 0.45, (3, 60))
        )
        found = crossed_mean(rows.tolist())
        covered += found.low <= 0 <= found.high
    assert covered / 400 >= 0.93


def test_fisher_is_that_of_scipy():
    for successes, n, earlier, earlier_n in [
        (6, 12, 16, 16),
        (0, 4, 0, 5),
        (3, 3, 1, 4),
        (12, 16, 15, 16),
        (2, 9, 30, 32),
    ]:
        table = [[successes, n - successes], [earlier, earlier_n - earlier]]
        assert fisher_fewer(successes, n, earlier, earlier_n) == pytest.approx(
            scipy.stats.fisher_exact(table, alternative="less").pvalue
        )
    assert fisher_fewer(3, 8, 0, 0) == 1.0, "nothing to compare with"
