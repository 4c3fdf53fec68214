"""Bounds that hold at several looks: exact values, and simulated error rates."""

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
    repeated_bounds,
    verdict_against,
)

LOOKS = 4
SEQUENCES = 20_000
MARGIN = 0.005
"""Above 0.0046, three standard errors of a simulated rate of 0.05 over 20,000 sequences."""

verdict = cache(verdict_against)


def simulate_verdicts(p: float, floor: float, seed: int) -> dict[str, float]:
    """Return the share of sequences that end in each verdict.

    A sequence has up to LOOKS batches, each with a random number of dreamed successes to confirm.
    """
    rng = np.random.default_rng(seed)
    shares = dict.fromkeys((ABOVE, BELOW, UNDECIDED), 0)
    sizes = rng.binomial(48, 0.65, (SEQUENCES, LOOKS))
    confirmed = rng.binomial(sizes, p)
    for n, wins in zip(sizes.cumsum(axis=1).tolist(), confirmed.cumsum(axis=1).tolist(), strict=True):
        outcome = UNDECIDED
        for look in range(LOOKS):
            outcome = verdict(floor, wins[look], n[look], looks=LOOKS)
            if outcome != UNDECIDED:
                break
        shares[outcome] += 1
    return {name: count / SEQUENCES for name, count in shares.items()}


def test_one_look_has_the_printed_clopper_pearson_bounds():
    # Clopper and Pearson's for 8 of 10, 95 % two-sided: 0.4439 to 0.9748
    assert exact_bounds(8, 10, 0.025) == pytest.approx((0.4439, 0.9748), abs=1e-4)
    assert exact_bounds(0, 20, 0.05) == (0.0, pytest.approx(1 - 0.05 ** (1 / 20)))
    assert exact_bounds(20, 20, 0.05) == (pytest.approx(0.05 ** (1 / 20)), 1.0)


def test_more_looks_have_wider_bounds():
    one, four = (repeated_bounds(35, 38, looks=looks) for looks in (1, 4))
    assert four[0] < one[0] < 35 / 38 < one[1] < four[1]


def test_a_verdict_needs_the_whole_interval_on_one_side():
    assert verdict_against(0.8, 20, 20, looks=4) == ABOVE
    assert verdict_against(0.8, 19, 20, looks=4) == UNDECIDED, (
        "19 of 20 do not show that the floor 0.8 is reached"
    )
    assert verdict_against(0.8, 13, 20, looks=4) == UNDECIDED
    assert verdict_against(0.8, 8, 20, looks=4) == BELOW
    assert least_successes(0.8, 20, looks=4) == 20 and least_successes(0.8, 19, looks=4) is None


def test_a_floor_of_zero_passes_and_no_observation_is_undecided():
    assert verdict_against(0.0, 0, 0, looks=3) == ABOVE and verdict_against(0.0, 0, 6, looks=3) == ABOVE
    assert verdict_against(0.2, 0, 0, looks=3) == UNDECIDED
    assert verdict_against(1.0, 6, 6, looks=3) == UNDECIDED and verdict_against(1.0, 5, 6, looks=3) == BELOW


@pytest.mark.parametrize("counts", [(-1, 3), (4, 3)])
def test_impossible_counts_are_refused(counts):
    with pytest.raises(ValueError, match="expected 0 <= successes <= n"):
        exact_bounds(*counts, 0.05)


def test_zero_looks_and_a_zero_error_are_refused():
    with pytest.raises(ValueError, match="expected at least 1"):
        repeated_bounds(1, 2, looks=0)
    with pytest.raises(ValueError, match="above 0 and at most 0.5"):
        exact_bounds(1, 2, 0.0)


@pytest.mark.parametrize("floor", [0.2, 0.8])
def test_at_the_floor_each_verdict_is_at_most_as_frequent_as_its_error(floor):
    """The type I error on both sides, at the worst case: p is the floor itself."""
    shares = simulate_verdicts(floor, floor, seed=1)
    assert shares[ABOVE] <= ERROR + MARGIN and shares[BELOW] <= ERROR + MARGIN
    assert shares[ABOVE] > 0.005, "the looks must not cost too much power"


def test_away_from_the_floor_the_verdict_is_right():
    """Power with up to four batches of about 31 dreamed successes each."""
    good, poor = simulate_verdicts(0.95, 0.8, seed=2), simulate_verdicts(0.6, 0.8, seed=3)
    assert good[ABOVE] > 0.95 and good[BELOW] == 0
    assert poor[BELOW] > 0.95 and poor[ABOVE] == 0


def test_four_batches_decide_more_often_than_one():
    """At 0.9 against a floor of 0.8 one batch decides rarely and four decide mostly."""
    four = simulate_verdicts(0.9, 0.8, seed=4)
    one = np.random.default_rng(4).binomial(31, 0.9, SEQUENCES)
    decided = np.mean([verdict(0.8, int(wins), 31, looks=LOOKS) == ABOVE for wins in one])
    assert four[ABOVE] > 0.5 > 0.25 > decided
