"""Watches the loss of a training: a jump is noted, and a loss that does not come back ends the stage."""

from __future__ import annotations

import statistics
from collections.abc import Sequence

from components.errors import TrainingError

JUMP = 3.0
"""A loss above this many times the running median, in `LASTING` updates in a row, is a jump."""
LASTING = 2
"""A single batch may hold another kind of text than most, such as instructions of generated tasks."""
WINDOW = 50
"""Updates of the running median."""
FEWEST = 20
"""Updates before which no loss counts as a jump."""


def is_jump(losses: Sequence[float]) -> bool:
    """True if the last `LASTING` of `losses` are a jump over the updates before them."""
    before = losses[-WINDOW - LASTING : -LASTING]
    return len(before) >= FEWEST and min(losses[-LASTING:]) > JUMP * statistics.median(before)


def require_recovered(losses: Sequence[float]) -> None:
    """Check at the end of a training that its loss came back from its jumps.

    Raises:
        TrainingError: the mean of the last updates is above `JUMP` times that of an earlier window. Means, as
            batches may hold texts of several kinds: a median then leaps from one kind's loss to another's.
    """
    ends = range(WINDOW, len(losses) + 1, WINDOW)
    means = {end: statistics.fmean(losses[end - WINDOW : end]) for end in ends}
    if not means:
        return
    lowest_end = min(means, key=lambda end: means[end])
    final = statistics.fmean(losses[-FEWEST:])
    if final > JUMP * means[lowest_end]:
        raise TrainingError(
            f"The loss jumped and did not come back: it is {final:.3g} nats a token at the end, and was "
            f"{means[lowest_end]:.3g} around update {lowest_end - WINDOW // 2}.",
            f"Expected at most {JUMP:g} times that.",
            "Lower the stage's learning_rate, for example to a third, and run again.",
        )
