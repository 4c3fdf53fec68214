"""Differences of two runs' metrics: paired by game, by MOVER, or present in one run only."""

from __future__ import annotations

import pytest

from components.evaluation.metrics.intervals import proportion
from components.evaluation.metrics.metric_changes import changes, unpaired
from components.evaluation.metrics.paired_outcomes import paired_difference


def entry(successes, n):
    return proportion(successes, n).to_json()


def test_equal_metrics_are_left_out_and_metrics_of_one_run_are_listed():
    compared = changes({"a": entry(5, 10), "b": entry(1, 10)}, {"a": entry(5, 10), "c": entry(2, 10)})
    listed = [
        (change.name, change.first is None, change.second is None, change.difference) for change in compared
    ]
    assert listed == [("b", False, True, None), ("c", True, False, None)]


def test_success_on_the_same_games_is_compared_game_by_game():
    first, second = ({f"g{n}": n < won for n in range(40)} for won in (10, 25))
    metrics = [{"evaluate/dreamed/success_rate": entry(sum(won.values()), 40)} for won in (first, second)]
    (change,) = changes(*metrics, games=[{"dreamed": first}, {"dreamed": second}])
    expected = paired_difference(list(second.values()), list(first.values()))
    assert (
        change.paired
        and change.is_significant
        and change.difference == expected
        and change.difference.value == 0.375
    )
    (other,) = changes(*metrics, games=[{"dreamed": first}, {"dreamed": {"g99": True}}])
    assert not other.paired and other.difference.value == 0.375


def test_the_unpaired_interval_of_proportions_is_newcombes():
    """MOVER with Wilson's intervals is Newcombe's method 10.

    His example: 56/70 against 48/80 gives 0.0524 to 0.3339.
    """
    difference = unpaired(entry(48, 80), entry(56, 70))
    assert (difference.value, difference.low, difference.high) == pytest.approx(
        (0.2, 0.0524, 0.3339), abs=1e-4
    ) and difference.n == 70


def test_any_difference_of_exact_values_is_significant():
    exact = {"value": 3.0, "n": 1, "low": 3.0, "high": 3.0}
    (change,) = changes({"a": exact}, {"a": exact | {"value": 4.0, "low": 4.0, "high": 4.0}})
    assert change.is_significant and (change.difference.low, change.difference.high) == (1.0, 1.0)
