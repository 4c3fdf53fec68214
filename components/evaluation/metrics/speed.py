"""Speed of several ways to do the same work, measured in turns: rates, and ratios that a busy machine
disturbs little.

In each round every contestant does a share of its work, in turns of about a second, on one thread. What else
runs on the machine then slows all alike, and the ratio of a round says more than two rates. Over the rounds:
the median with its interval.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from time import perf_counter

from components.evaluation.metrics.intervals import Estimate, median


@dataclass
class Work:
    """What a contestant has done in a round: steps, tokens written (0 where none are) and the seconds it
    took.
    """

    steps: int = 0
    tokens: int = 0
    seconds: float = 0.0

    @contextmanager
    def timed(self) -> Iterator[None]:
        """Add the wall time of the block."""
        began = perf_counter()
        try:
            yield
        finally:
            self.seconds += perf_counter() - began


Round = Mapping[str, Work]
"""Contestant -> its work in one round."""


def speed_metrics(rounds: Sequence[Round], first: str, confidence: float) -> dict[str, Estimate]:
    """Steps and tokens a second of each contestant, and `ratio_vs_<other>`: steps a second of `first` over
    those of each other one.
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
                [_rate(r[first]) / _rate(r[name]) for r in rounds], confidence
            )
    return metrics


def _rate(work: Work) -> float:
    return work.steps / work.seconds
