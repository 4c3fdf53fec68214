"""Comparison of paired outcomes against values computed by hand or printed in the sources."""

import math
import random

import pytest

from components.evaluation.metrics.intervals import proportion
from components.evaluation.metrics.paired_outcomes import (
    cohen_kappa,
    mcnemar_one_sided_p_value,
    mcnemar_p_value,
    paired_difference,
)


def outcomes(both, gained, lost, neither):
    a = [True] * (both + gained) + [False] * (lost + neither)
    b = [True] * both + [False] * gained + [True] * lost + [False] * neither
    return a, b


def test_the_paired_interval_by_hand():
    # 36 won by both, 12 by the first alone, 2 by the second alone, 0 by neither: ad - bc = -24, so phi is
    # not corrected
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


def test_a_positive_correlation_gets_the_continuity_correction():
    # ad - bc = 19*19 - 1*11 = 350, less n/2 = 25
    difference = paired_difference(*outcomes(19, 11, 1, 19))
    assert difference.low < 0.2 < difference.high
    uncorrected_phi, corrected_phi = (value / math.sqrt(30 * 20 * 20 * 30) for value in (350, 325))
    dl1, du2 = proportion(30, 50).value - proportion(30, 50).low, proportion(20, 50).high - 0.4
    assert difference.low == pytest.approx(0.2 - math.sqrt(dl1**2 - 2 * corrected_phi * dl1 * du2 + du2**2))
    assert difference.low != pytest.approx(0.2 - math.sqrt(dl1**2 - 2 * uncorrected_phi * dl1 * du2 + du2**2))


def test_the_paired_difference_is_antisymmetric_and_counts_discordant_games():
    a, b = outcomes(10, 7, 2, 5)
    forward, backward = paired_difference(a, b), paired_difference(b, a)
    assert (forward.gained, forward.lost) == (7, 2) == (backward.lost, backward.gained)
    assert (forward.value, forward.low, forward.high) == pytest.approx(
        (-backward.value, -backward.high, -backward.low)
    )
    assert forward.p_value == backward.p_value


def test_the_two_sided_mcnemar_p_value_by_hand():
    assert mcnemar_p_value(5, 0) == pytest.approx(2 / 32)
    assert mcnemar_p_value(7, 2) == pytest.approx(2 * (1 + 9 + 36) / 512)
    assert mcnemar_p_value(3, 3) == 1.0
    assert mcnemar_p_value(0, 0) == 1.0


def test_equal_outcomes_have_a_difference_of_zero():
    difference = paired_difference([True, False] * 8, [True, False] * 8)
    assert difference.value == 0.0
    assert difference.low < 0 < difference.high
    assert difference.p_value == 1.0


def test_kappa_by_hand():
    a = [True] * 45 + [False] * 15 + [True] * 25 + [False] * 15
    b = [True] * 45 + [False] * 15 + [False] * 25 + [True] * 15
    kappa = cohen_kappa(a, b)
    assert kappa.value == pytest.approx((0.6 - 0.54) / 0.46)  # 60 agree; by chance 0.7 * 0.6 + 0.3 * 0.4
    assert kappa.n == 100 and kappa.low < 0 < kappa.value < kappa.high < 0.4
    assert cohen_kappa([True, False] * 20, [True, False] * 20).value == 1
    assert cohen_kappa([True, False] * 20, [False, True] * 20).value == -1


def test_kappa_is_undefined_if_all_verdicts_are_the_same():
    for verdicts in ([], [True] * 30, [False] * 30):
        kappa = cohen_kappa(verdicts, verdicts)
        assert (kappa.value, kappa.n, kappa.low, kappa.high) == (0.0, len(verdicts), -1.0, 1.0)
    with pytest.raises(ValueError, match="1 verdicts against 2"):
        cohen_kappa([True], [True, False])


@pytest.mark.parametrize(
    ("best", "flipped", "n"), [(0.5, 0.1, 30), (0.9, 0.05, 30), (0.8, 0.2, 100), (0.95, 0.02, 100)]
)
def test_the_interval_of_kappa_covers_the_true_kappa(best, flipped, n):
    rng = random.Random(0)
    judge = best * (1 - flipped) + (1 - best) * flipped
    chance = judge * best + (1 - judge) * (1 - best)
    kappa, covered, draws = (1 - flipped - chance) / (1 - chance), 0, 600
    for _ in range(draws):
        truth = [rng.random() < best for _ in range(n)]
        estimate = cohen_kappa([value != (rng.random() < flipped) for value in truth], truth)
        covered += estimate.low <= kappa <= estimate.high
    assert covered / draws > 0.93


def test_the_one_sided_mcnemar_p_value_is_the_binomial_tail():
    assert mcnemar_one_sided_p_value(0, 0) == 1.0
    assert mcnemar_one_sided_p_value(4, 0) == pytest.approx(1 / 16)
    assert mcnemar_one_sided_p_value(3, 1) == pytest.approx(5 / 16)
    assert mcnemar_one_sided_p_value(0, 4) == 1.0
