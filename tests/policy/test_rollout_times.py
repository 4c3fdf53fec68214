"""The two parts of a turn's time, fitted to turns with different numbers of episodes."""

from types import SimpleNamespace

import pytest

from components.policy.rollout_figures import rollout_times


def rollouts(lengths, turn, row, jitter=0.0):
    """Return rollouts that stepped together, each turn as long as its active episodes make it."""
    seconds = [jitter + turn + row * sum(length > k for length in lengths) for k in range(max(lengths))]
    return [SimpleNamespace(turn_seconds=seconds[:length]) for length in lengths]


def test_both_parts_come_back():
    times = rollout_times(rollouts([3, 5, 8, 8], 0.2, 0.01), interactions=24, seconds=2.0)
    assert times == pytest.approx({"steps_per_second": 12.0, "turn_seconds": 0.2, "row_seconds": 0.01})


def test_shares_of_two_workers_are_told_apart():
    both = rollouts([3, 5, 8], 0.2, 0.01) + rollouts([2, 9], 0.2, 0.01, jitter=1e-9)
    times = rollout_times(both, interactions=27, seconds=1.0)
    assert (times["turn_seconds"], times["row_seconds"]) == pytest.approx((0.2, 0.01))


@pytest.mark.parametrize(
    ("lengths", "turn", "row", "expected"),
    [
        ([4, 4], 0.2, 0.01, (0.0, 0.11)),  # always two episodes: all of the time is theirs
        ([2, 4], 0.0, 0.1, (0.0, 0.1)),
        ([2, 4], 0.3, -0.1, (0.0, None)),  # fewer episodes took longer: neither part is negative
    ],
)
def test_no_part_is_negative(lengths, turn, row, expected):
    times = rollout_times(rollouts(lengths, turn, row), interactions=6, seconds=1.0)
    assert times["turn_seconds"] >= 0 and times["row_seconds"] >= 0
    if expected[1] is not None:
        assert (times["turn_seconds"], times["row_seconds"]) == pytest.approx(expected)


def test_no_turn_at_all():
    assert rollout_times([], 0, 1.0) == {"steps_per_second": 0.0, "turn_seconds": 0.0, "row_seconds": 0.0}
