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


def test_the_overlapped_schedule_takes_the_longer_part():
    assert simulate(TIMES, LENGTHS, Cluster(1), "overlapped").seconds == 10.0
    slow = LoopTimes(turn=1.0, row=0.5, update=2.0, workers=1, error=0.0)
    assert simulate(slow, LENGTHS, Cluster(1), "overlapped").seconds == 9.0


@pytest.mark.parametrize(("staleness", "seconds"), [(0, 12.0), (1, 10.0), (2, 7.5), (9, 7.5)])
def test_workers_that_go_on_with_the_next_share_wait_less_by_hand(staleness, seconds):
    """One row a worker, turns of a second; two workers, whose longer share changes sides; updates of 2.

    In step each iteration takes 10 + 2. With staleness 1 it takes the longer share of 10. With 2 a worker
    always has its next share before it ends one, so two iterations take 10 + 5.
    """
    times = LoopTimes(turn=1.0, row=0.0, update=2.0, workers=1, error=0.0)
    lengths = [[10, 5], [5, 10]] * 20
    found = simulate(times, lengths, Cluster(2, staleness=staleness), "asynchronous")
    assert found.seconds == pytest.approx(seconds, rel=0.02)


def test_schedules_differ_in_staleness_alone():
    for schedule, staleness in (("lockstep", 0), ("overlapped", 1)):
        expected = simulate(TIMES, LENGTHS, Cluster(2, straggling=0.5), schedule, seed=3)
        cluster = Cluster(2, straggling=0.5, staleness=staleness)
        assert simulate(TIMES, LENGTHS, cluster, "asynchronous", seed=3) == expected


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
