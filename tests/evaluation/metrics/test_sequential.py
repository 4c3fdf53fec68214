"""Bounds that hold at several looks: exact values, and error rates by simulation."""

from functools import cache

import numpy as np
import pytest

from components.evaluation.metrics.sequential import (
    ABOVE,
    BELOW,
    ERROR,
    UNDECIDED,
    exact_bounds,
    least_successes,
    mcnemar_greater,
    repeated_bounds,
    verdict_against,
)

LOOKS = 4
SEQUENCES = 20_000
MARGIN = 0.005
"""Three standard errors of a simulated rate of 0.05 over 20,000 sequences are 0.0046."""

verdict = cache(verdict_against)


def simulated(p: float, floor: float, seed: int) -> dict[str, float]:
    """Share of sequences by verdict: up to LOOKS batches, each with a random number of successes to confirm,
    as in a dream.
    """
    rng = np.random.default_rng(seed)
    shares = dict.fromkeys((ABOVE, BELOW, UNDECIDED), 0)
    sizes = rng.binomial(48, 0.65, (SEQUENCES, LOOKS))
    confirmed = rng.binomial(sizes, p)
    for n, wins in zip(sizes.cumsum(axis=1).tolist(), confirmed.cumsum(axis=1).tolist(), strict=True):
        found = UNDECIDED
        for look in range(LOOKS):
            found = verdict(floor, wins[look], n[look], looks=LOOKS)
            if found != UNDECIDED:
                break
        shares[found] += 1
    return {name: count / SEQUENCES for name, count in shares.items()}


def test_one_look_has_the_exact_bounds_of_the_tables():
    # Clopper and Pearson's for 8 of 10, 95 % two-sided: 0.4439 to 0.9748
    assert exact_bounds(8, 10, 0.025) == pytest.approx((0.4439, 0.9748), abs=1e-4)
    assert exact_bounds(0, 20, 0.05) == (0.0, pytest.approx(1 - 0.05 ** (1 / 20)))
    assert exact_bounds(20, 20, 0.05) == (pytest.approx(0.05 ** (1 / 20)), 1.0)


def test_more_looks_have_wider_bounds():
    one, four = (repeated_bounds(35, 38, looks=looks) for looks in (1, 4))
    assert four[0] < one[0] < 35 / 38 < one[1] < four[1]


def test_a_verdict_waits_for_the_whole_interval():
    assert verdict_against(0.8, 20, 20, looks=4) == ABOVE
    assert verdict_against(0.8, 19, 20, looks=4) == UNDECIDED, "0.95 of 20 is a coin beside a floor of 0.8"
    assert verdict_against(0.8, 13, 20, looks=4) == UNDECIDED
    assert verdict_against(0.8, 8, 20, looks=4) == BELOW
    assert least_successes(0.8, 20, looks=4) == 20 and least_successes(0.8, 19, looks=4) is None


def test_a_floor_of_zero_passes_and_nothing_observed_decides_nothing():
    assert verdict_against(0.0, 0, 0, looks=3) == ABOVE and verdict_against(0.0, 0, 6, looks=3) == ABOVE
    assert verdict_against(0.2, 0, 0, looks=3) == UNDECIDED
    assert verdict_against(1.0, 6, 6, looks=3) == UNDECIDED and verdict_against(1.0, 5, 6, looks=3) == BELOW


@pytest.mark.parametrize("wrong", [(-1, 3), (4, 3)])
def test_impossible_counts_are_refused(wrong):
    with pytest.raises(ValueError, match="expected 0 <= successes <= n"):
        exact_bounds(*wrong, 0.05)


def test_no_look_and_no_error_are_refused():
    with pytest.raises(ValueError, match="expected at least 1"):
        repeated_bounds(1, 2, looks=0)
    with pytest.raises(ValueError, match="above 0 and at most 0.5"):
        exact_bounds(1, 2, 0.0)


@pytest.mark.parametrize("floor", [0.2, 0.8])
def test_at_the_floor_neither_verdict_comes_more_often_than_its_error(floor):
    """Type I error on both sides, at the hardest value: p is the floor itself."""
    shares = simulated(floor, floor, seed=1)
    assert shares[ABOVE] <= ERROR + MARGIN and shares[BELOW] <= ERROR + MARGIN
    assert shares[ABOVE] > 0.005, "otherwise the looks cost more than they should"


def test_away_from_the_floor_the_right_verdict_comes():
    """Power with at most four batches of about 31 dreamed successes each."""
    good, poor = simulated(0.95, 0.8, seed=2), simulated(0.6, 0.8, seed=3)
    assert good[ABOVE] > 0.95 and good[BELOW] == 0
    assert poor[BELOW] > 0.95 and poor[ABOVE] == 0


def test_a_single_batch_would_leave_open_what_four_decide():
    """0.9 against 0.8: one batch decides seldom, four mostly."""
    four = simulated(0.9, 0.8, seed=4)
    one = np.random.default_rng(4).binomial(31, 0.9, SEQUENCES)
    decided = np.mean([verdict(0.8, int(wins), 31, looks=LOOKS) == ABOVE for wins in one])
    assert four[ABOVE] > 0.5 > 0.25 > decided


def test_mcnemar_greater_is_the_binomial_tail():
    assert mcnemar_greater(0, 0) == 1.0
    assert mcnemar_greater(4, 0) == pytest.approx(1 / 16)
    assert mcnemar_greater(3, 1) == pytest.approx(5 / 16)
    assert mcnemar_greater(0, 4) == 1.0
