"""The simulator of the RL loop: hand-computed iterations, limits, and fitted times that come back."""

import numpy as np
import pytest

from components.evaluation.scaling.loop_simulator import SCHEDULES, Cluster, simulate
from components.evaluation.scaling.loop_times import LoopTimes, MeasuredIteration, fit_times

TIMES = LoopTimes(turn=1.0, row=0.5, update=10.0, workers=1, error=0.0)
LENGTHS = [[4, 2, 3, 1]]


def test_lockstep_with_one_worker_by_hand():
    # Turns with 4, 3, 2, 1 active episodes: 4 x 1.0 + (4 + 3 + 2 + 1) x 0.5 = 9.
    found = simulate(TIMES, LENGTHS, Cluster(1))
    assert (found.rollouts, found.update, found.seconds) == (9.0, 10.0, 19.0)
    assert found.idle == pytest.approx(1 - 9 / 19)
    assert found.bottleneck == "update"


def test_two_workers_wait_for_the_slower_share():
    # Shares [4, 2] and [3, 1]: 4 + 3 = 7 and 3 + 2 = 5.
    found = simulate(TIMES, LENGTHS, Cluster(2))
    assert found.rollouts == 7.0
    assert found.idle == pytest.approx(1 - 6 / 17)


def test_trainers_share_the_update_and_the_sync_comes_on_top():
    found = simulate(TIMES, LENGTHS, Cluster(1, trainers=3, training_efficiency=0.5, sync_seconds=1.0))
    assert found.update == 10 / 2 + 1
    assert found.bottleneck == "rollouts"


def test_overlap_takes_the_longer_part_and_refilled_rows_never_less_than_the_work():
    overlapped = simulate(TIMES, LENGTHS, Cluster(1), "overlapped")
    assert overlapped.seconds == 10.0
    refilled = simulate(TIMES, LENGTHS, Cluster(1), "asynchronous")
    assert refilled.rollouts == pytest.approx(2.5 * (1 + 4 * 0.5))  # 10 steps in turns of 4 rows
    waiting = simulate(TIMES, LENGTHS, Cluster(1, staleness=0), "asynchronous")
    assert waiting.seconds == pytest.approx(refilled.rollouts + 10)


def test_more_workers_than_episodes_gain_nothing():
    assert (
        simulate(TIMES, LENGTHS, Cluster(64)).rollouts == simulate(TIMES, LENGTHS, Cluster(4)).rollouts == 6.0
    )
    assert simulate(TIMES, LENGTHS, Cluster(64), "overlapped").idle > 0.9


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_stragglers_cost_time_where_workers_wait_and_a_seed_repeats(schedule):
    lengths = [list(np.random.default_rng(1).integers(5, 20, 64))] * 20
    even = simulate(TIMES, lengths, Cluster(16), schedule)
    uneven = simulate(TIMES, lengths, Cluster(16, straggling=1.0), schedule)
    assert uneven == simulate(TIMES, lengths, Cluster(16, straggling=1.0), schedule)
    if schedule == "asynchronous":
        assert uneven.rollouts == pytest.approx(even.rollouts, rel=0.3)
    else:
        assert uneven.rollouts > 1.2 * even.rollouts


def test_times_are_means_and_their_error_is_known():
    iterations = [
        MeasuredIteration([4, 2], 1.0, 0.5, 7.0, 10.0),
        MeasuredIteration([4, 2], 1.0, 0.5, 14.0, 15.0),
    ]
    times = fit_times(iterations, 1)
    assert (times.turn, times.row, times.update) == (1.0, 0.5, 2.0)
    assert times.error == pytest.approx((0.0**2 / 2 + 0.5**2 / 2) ** 0.5)
    assert fit_times(iterations[:1], 2).error == pytest.approx(1 - 6 / 7)


def test_iterations_without_rollouts_are_refused():
    with pytest.raises(ValueError, match="with rollouts"):
        fit_times([], 1)
    with pytest.raises(ValueError, match="with rollouts"):
        fit_times([MeasuredIteration([], 1.0, 1.0, 1.0, 2.0)], 1)
