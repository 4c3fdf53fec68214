"""Rollouts that are begun ahead take the time that the simulation of the loop says."""

from __future__ import annotations

import itertools
import time

import numpy as np
import pytest
from loop_builders import make_loop
from policy_worlds import SleepingDream, share_seconds

from components.evaluation.scaling.loop_simulator import iteration_seconds
from components.policy.rl.players.rollout_workers import ProcessPoolPlayer

WORKERS, ITERATIONS, UPDATE, STALENESS = 4, 16, 0.3, (0, 1, 4)


@pytest.mark.long
def test_a_loop_with_stragglers_takes_the_simulated_time(capsys):
    """Four processes whose shares sleep, and updates that sleep: real processes, threads and queues."""
    busy = np.array(
        [
            [share_seconds(number * WORKERS + place) for place in range(WORKERS)]
            for number in range(ITERATIONS)
        ]
    )
    measured, expected = {}, {}
    with ProcessPoolPlayer(WORKERS, SleepingDream) as players:
        for staleness in STALENESS:
            measured[staleness] = seconds_of(players, staleness)
            expected[staleness] = iteration_seconds(busy, UPDATE, staleness)
    with capsys.disabled():
        for staleness in STALENESS:
            print(f"staleness {staleness}: {measured[staleness]:.2f} s, {expected[staleness]:.2f} simulated")
    assert all(slower > 1.05 * faster for slower, faster in itertools.pairwise(measured.values()))
    for staleness in STALENESS:
        assert measured[staleness] == pytest.approx(expected[staleness], rel=0.6)


def seconds_of(players, staleness):
    """Return the mean seconds of an iteration of a loop, without the first ones."""
    loop = make_loop(
        SleepingDream(),
        iterations=ITERATIONS,
        staleness=staleness,
        end_early=False,
        max_steps=1,
    )
    loop.player = loop._source._player = players
    ends = []

    def on_iteration(*_):
        time.sleep(UPDATE)
        ends.append(time.monotonic())

    loop.run(on_iteration=on_iteration)
    skipped = 4
    return (ends[-1] - ends[skipped]) / (ITERATIONS - 1 - skipped)
