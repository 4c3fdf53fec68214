"""What one iteration of RL takes, from the times that a run measured.

A rollout worker's turn with `k` active episodes takes `turn + k * row` seconds: the first part does not
depend on how many episodes play (weights are read once), the second is each episode's own. Each iteration of
a run measures both (`components/policy/rollout_figures.py`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class MeasuredIteration:
    """One iteration of a run.

    Args:
        lengths: steps of each episode, in the order of the rows.
        turn_seconds: of a worker's turn, whatever plays in it.
        row_seconds: of each episode that plays in a turn, in addition.
        rollout_seconds: of all rollouts.
        seconds: of the whole iteration.
    """

    lengths: Sequence[int]
    turn_seconds: float
    row_seconds: float
    rollout_seconds: float
    seconds: float


@dataclass(frozen=True)
class LoopTimes:
    """Seconds of the parts of an iteration on the machine that was measured.

    Args:
        turn: of a worker's turn, whatever plays in it.
        row: of each episode that plays in a turn, in addition.
        update: of everything after the rollouts, on one training device.
        workers: rollout workers of the measured run.
        error: root mean square of the relative errors of the rollout seconds that follow from them.
    """

    turn: float
    row: float
    update: float
    workers: int
    error: float


def fit_times(iterations: Sequence[MeasuredIteration], workers: int) -> LoopTimes:
    """Return the means over the iterations, and how far they are from the measured rollouts.

    Args:
        workers: rollout workers of the run, each with an equal share of neighbouring rows.

    Raises:
        ValueError: there is no iteration, or one without rollouts.
    """
    if not iterations or any(not one.lengths or one.rollout_seconds <= 0 for one in iterations):
        raise ValueError("the times of a loop are fitted to iterations with rollouts")
    turn = float(np.mean([one.turn_seconds for one in iterations]))
    row = float(np.mean([one.row_seconds for one in iterations]))
    errors = [
        max(max(share) * turn + sum(share) * row for share in shares(one.lengths, workers))
        / one.rollout_seconds
        - 1
        for one in iterations
    ]
    update = float(np.mean([one.seconds - one.rollout_seconds for one in iterations]))
    return LoopTimes(turn, row, max(0.0, update), workers, float(np.sqrt(np.mean(np.square(errors)))))


def shares(lengths: Sequence[int], workers: int) -> list[Sequence[int]]:
    """Return the lengths that each worker plays; neighbouring rows share a worker."""
    count = min(workers, len(lengths))
    bounds = [len(lengths) * place // count for place in range(count + 1)]
    return [lengths[start:end] for start, end in zip(bounds, bounds[1:], strict=False)]
