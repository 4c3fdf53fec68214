"""Simulated iterations of RL on other numbers of devices, and the part that then limits them.

Three schedules:

- `lockstep`: all rollouts, then the update, then the new weights go to the workers;
- `overlapped`: the next iteration's rollouts are played during the update (`rl.dream.overlap`), one step
  off-policy;
- `asynchronous`: workers refill their rows and never wait while at most `staleness` updates are behind.

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
        staleness: updates that an asynchronous worker's weights may be behind.
    """

    workers: int
    trainers: int = 1
    training_efficiency: float = 0.9
    sync_seconds: float = 0.0
    straggling: float = 0.0
    staleness: int = 1


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
    slowest, mean, whole = [], [], []
    for iteration in lengths:
        busy = [
            _share_seconds(times, share, cluster.straggling, random)
            for share in shares(iteration, cluster.workers)
        ]
        busy += [0.0] * (cluster.workers - len(busy))
        slowest.append(max(busy))
        mean.append(float(np.mean(busy)))
        whole.append(_refilled_seconds(times, iteration, cluster, random))
    rollouts = float(np.mean(slowest))
    if schedule == "lockstep":
        seconds = rollouts + update
        return Simulated(seconds, rollouts, update, 1 - float(np.mean(mean)) / seconds)
    if schedule == "overlapped":
        seconds = max(rollouts, update)
        return Simulated(seconds, rollouts, update, 1 - float(np.mean(mean)) / seconds)
    rollouts = float(np.mean(whole))
    # With no staleness allowed, workers wait for each update; with one or more they wait if they are ahead.
    seconds = max(rollouts, update) if cluster.staleness else rollouts + update
    return Simulated(seconds, rollouts, update, 1 - rollouts / seconds)


def _share_seconds(
    times: LoopTimes, share: Sequence[int], straggling: float, random: np.random.Generator
) -> float:
    """Return the seconds in which one worker plays its episodes, all of them stepping together."""
    ends = np.sort(np.asarray(share))
    turns = np.arange(ends[-1])
    active = len(ends) - np.searchsorted(ends, turns, side="right")
    return float(np.sum((times.turn + times.row * active) * _factors(len(turns), straggling, random)))


def _refilled_seconds(
    times: LoopTimes, lengths: Sequence[int], cluster: Cluster, random: np.random.Generator
) -> float:
    """Return the seconds in which all workers together play the episodes with their rows always full."""
    rows = max(1, len(lengths) // cluster.workers)
    turns = sum(lengths) / (rows * cluster.workers)
    factor = float(np.mean(_factors(max(1, round(turns)), cluster.straggling, random)))
    return turns * (times.turn + times.row * rows) * factor


def _factors(count: int, straggling: float, random: np.random.Generator) -> np.ndarray:
    """Return random factors with mean 1."""
    if not straggling:
        return np.ones(count)
    return random.lognormal(-(straggling**2) / 2, straggling, count)
