"""Simulated iterations of RL on other numbers of devices, and the part that then limits them.

Three schedules, which are those of the loop (`components/policy/rl/players/rollouts_ahead.py`):

- `lockstep`: all rollouts, then the update, then the new weights go to the workers;
- `overlapped`: the next iteration's rollouts are played during the update, one update old
  (`rl.dream.staleness: 1`);
- `asynchronous`: several iterations are in the making at once; a worker that has played its share of one goes
  on with the next (`rl.dream.staleness` of 2 or more).

A turn of a worker takes the fitted time, times a random factor if there are stragglers. What is simulated is
arithmetic on measured times: it knows no network, no memory limit, and no other user of the machine.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from components.evaluation.scaling.loop_times import LoopTimes, shares

Schedule = Literal["lockstep", "overlapped", "asynchronous"]
SCHEDULES: tuple[Schedule, ...] = ("lockstep", "overlapped", "asynchronous")


@dataclass(frozen=True)
class Cluster:
    """The devices and what they cost.

    Args:
        workers: rollout workers, each as fast as a measured one.
        trainers: training devices.
        training_efficiency: share of a device's speed that each further training device adds.
        sync_seconds: from the end of an update until every worker has the new weights.
        straggling: standard deviation of the logarithm of a turn's random factor; 0: all turns alike.
        staleness: updates that an asynchronous worker's weights are behind.
    """

    workers: int
    trainers: int = 1
    training_efficiency: float = 0.9
    sync_seconds: float = 0.0
    straggling: float = 0.0
    staleness: int = 4


@dataclass(frozen=True)
class Simulated:
    """The mean iteration of a simulation, in seconds.

    Args:
        seconds: from one update to the next.
        rollouts: until the last episode is over, with nothing else in the way.
        update: of the update and the sync.
        idle: share of the workers' time in which they wait.
    """

    seconds: float
    rollouts: float
    update: float
    idle: float

    @property
    def bottleneck(self) -> str:
        """What a further device would have to speed up."""
        if self.update >= self.rollouts:
            return "update"
        return "stragglers" if self.idle > 0.5 else "rollouts"


def simulate(
    times: LoopTimes,
    lengths: Sequence[Sequence[int]],
    cluster: Cluster,
    schedule: Schedule = "lockstep",
    seed: int = 0,
) -> Simulated:
    """Return the mean over iterations whose episodes have the recorded lengths.

    Args:
        lengths: steps of the episodes of each iteration, in the order of the rows.
        seed: of the stragglers.
    """
    random = np.random.default_rng(seed)
    speedup = 1 + (cluster.trainers - 1) * cluster.training_efficiency
    update = times.update / speedup + cluster.sync_seconds
    busy = np.zeros((len(lengths), cluster.workers))
    for number, iteration in enumerate(lengths):
        for worker, share in enumerate(shares(iteration, cluster.workers)):
            busy[number, worker] = _share_seconds(times, share, cluster.straggling, random)
    staleness = {"lockstep": 0, "overlapped": 1, "asynchronous": cluster.staleness}[schedule]
    seconds = iteration_seconds(busy, update, staleness)
    slowest = busy.max(axis=1).mean() if staleness < 2 else busy.mean(axis=0).max()
    return Simulated(seconds, float(slowest), update, max(0.0, 1 - float(busy.mean()) / seconds))


def iteration_seconds(busy: np.ndarray, update: float, staleness: int) -> float:
    """Return the mean time from one update's end to the next, once the loop is under way.

    Args:
        busy: seconds of each worker's share, [iterations, workers]. All iterations are played twice; the
            second time counts.
    """
    count, workers = busy.shape
    free = np.zeros(workers)
    over: list[float] = []  # when the rollouts of each iteration are over
    ends: list[float] = []  # when each update is over
    now = 0.0

    def begin(until: int) -> None:
        nonlocal free
        while len(over) <= min(until, 2 * count - 1):
            free = np.maximum(free, now) + busy[len(over) % count]
            over.append(float(free.max()))

    for iteration in range(2 * count):
        begin(iteration)
        now = max(now, over[iteration])
        begin(iteration + staleness)
        now += update
        ends.append(now)
    return (ends[-1] - ends[count - 1]) / count


def _share_seconds(
    times: LoopTimes, share: Sequence[int], straggling: float, random: np.random.Generator
) -> float:
    """Return the seconds in which one worker plays its episodes, all of them stepping together."""
    ends = np.sort(np.asarray(share))
    turns = np.arange(ends[-1])
    active = len(ends) - np.searchsorted(ends, turns, side="right")
    return float(np.sum((times.turn + times.row * active) * _factors(len(turns), straggling, random)))


def _factors(count: int, straggling: float, random: np.random.Generator) -> np.ndarray:
    """Return random factors with mean 1."""
    if not straggling:
        return np.ones(count)
    return random.lognormal(-(straggling**2) / 2, straggling, count)
