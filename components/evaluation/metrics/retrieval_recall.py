"""What approximate retrieval misses, as a metric with its n and interval."""

from __future__ import annotations

from collections.abc import Sequence

from components.evaluation.metrics.intervals import Estimate, proportion
from components.experience.retrieval.replay_buffer import ReplayBuffer
from components.records import Trajectory

QUERIES = 500
"""Steps looked up, evenly spread: their neighbours give an interval of a percent."""


def recall_metrics(buffer: ReplayBuffer, episodes: Sequence[Trajectory]) -> dict[str, Estimate]:
    """`retrieval/recall` where the index is approximate, nothing where it is exact."""
    return (
        {"retrieval/recall": recall_estimate(buffer, episodes)}
        if buffer.config.k and buffer.config.index != "exact"
        else {}
    )


def recall_estimate(buffer: ReplayBuffer, episodes: Sequence[Trajectory]) -> Estimate:
    """Of the k steps that exact search finds nearest to steps of `episodes`, the share that the buffer's
    index finds; n counts them.

    The interval is Wilson's over neighbours, as if those of one query were independent.
    """
    steps = [(step.state, step.action) for episode in episodes for step in episode.steps]
    return proportion(*buffer.neighbours_found(steps[:: max(1, -(-len(steps) // QUERIES))]))
