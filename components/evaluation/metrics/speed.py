"""Speed of several implementations of the same work: rates, and ratios that other load on the machine hardly
affects.

In each round every implementation does a share of the work on one thread, in turns of about one second. Other
load on the machine then slows all of them equally. So the ratio within a round is more reliable than two
separate rates. The metrics are medians over the rounds, with intervals.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from time import perf_counter

from components.evaluation.metrics.intervals import Estimate, median


@dataclass
class Work:
    """Work of one implementation in one round: steps, generated tokens (0 if it generates none), seconds."""

    steps: int = 0
    tokens: int = 0
    seconds: float = 0.0

    @contextmanager
    def timed(self) -> Iterator[None]:
        """Add the wall time of the block to `seconds`."""
        start = perf_counter()
        try:
            yield
        finally:
            self.seconds += perf_counter() - start


Round = Mapping[str, Work]
"""Implementation -> its work in one round."""


def speed_metrics(rounds: Sequence[Round], first: str, confidence: float) -> dict[str, Estimate]:
    """Return steps and tokens per second of each implementation, and the ratios of `first` to the others.

    Args:
        rounds: at least one round; all have the same implementations.
        first: the implementation in the numerator of each `ratio_vs_<other>` (steps per second).
        confidence: level of the intervals.
    """
    metrics: dict[str, Estimate] = {}
    for name in rounds[0]:
        metrics[f"{name}/steps_per_second"] = median(
            [r[name].steps / r[name].seconds for r in rounds], confidence
        )
        if any(r[name].tokens for r in rounds):
            metrics[f"{name}/tokens_per_second"] = median(
                [r[name].tokens / r[name].seconds for r in rounds], confidence
            )
        if name != first:
            metrics[f"ratio_vs_{name}"] = median(
                [_steps_per_second(r[first]) / _steps_per_second(r[name]) for r in rounds], confidence
            )
    return metrics


def _steps_per_second(work: Work) -> float:
    return work.steps / work.seconds
