"""How metrics of two runs differ: paired where the games are the same, MOVER elsewhere, and what only one of
them has.
"""

from __future__ import annotations

import pytest

from components.evaluation.metrics.intervals import paired_difference, proportion
from components.evaluation.metrics.metric_changes import changes, unpaired


def entry(successes, n):
    return proportion(successes, n).to_json()


def test_equal_metrics_are_left_out_and_lonely_ones_are_told():
    found = changes({"a": entry(5, 10), "b": entry(1, 10)}, {"a": entry(5, 10), "c": entry(2, 10)})
    told = [(change.name, change.first is None, change.second is None, change.difference) for change in found]
    assert told == [("b", False, True, None), ("c", True, False, None)]


def test_success_on_the_same_games_is_compared_game_by_game():
    first, second = ({f"g{n}": n < won for n in range(40)} for won in (10, 25))
    metrics = [{"evaluate/dreamed/success_rate": entry(sum(won.values()), 40)} for won in (first, second)]
    (change,) = changes(*metrics, games=[{"dreamed": first}, {"dreamed": second}])
    expected = paired_difference(list(second.values()), list(first.values()))
    assert (
        change.paired and change.sure and change.difference == expected and change.difference.value == 0.375
    )
    (other,) = changes(*metrics, games=[{"dreamed": first}, {"dreamed": {"g99": True}}])
    assert not other.paired and other.difference.value == 0.375


def test_the_interval_of_an_unpaired_difference_is_newcombes_for_proportions():
    """MOVER with Wilson's intervals is Newcombe's method 10; his own example: 56/70 against 48/80, 0.0524 to
    0.3339.
    """
    found = unpaired(entry(48, 80), entry(56, 70))
    assert (found.value, found.low, found.high) == pytest.approx(
        (0.2, 0.0524, 0.3339), abs=1e-4
    ) and found.n == 70


def test_a_number_without_uncertainty_differs_surely():
    exact = {"value": 3.0, "n": 1, "low": 3.0, "high": 3.0}
    (change,) = changes({"a": exact}, {"a": exact | {"value": 4.0, "low": 4.0, "high": 4.0}})
    assert change.sure and (change.difference.low, change.difference.high) == (1.0, 1.0)
