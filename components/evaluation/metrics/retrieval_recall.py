"""Recall of the approximate retrieval index against exact search, as a metric with its n and interval."""

from __future__ import annotations

from collections.abc import Sequence

from components.evaluation.metrics.intervals import Estimate, proportion
from components.experience.retrieval.replay_buffer import ReplayBuffer
from components.records import Trajectory

QUERIES = 500
"""Steps that are looked up, evenly spaced. With so many the interval is about one percentage point wide."""


def recall_metrics(buffer: ReplayBuffer, episodes: Sequence[Trajectory]) -> dict[str, Estimate]:
    """Return `retrieval/recall` for an approximate index, and no metric for an exact one."""
    return (
        {"retrieval/recall": recall_estimate(buffer, episodes)}
        if buffer.config.k and buffer.config.index != "exact"
        else {}
    )


def recall_estimate(buffer: ReplayBuffer, episodes: Sequence[Trajectory]) -> Estimate:
    """Return the share of the true k nearest neighbours that the buffer's index returns; n counts neighbours.

    The interval is Wilson's over neighbours. It treats the neighbours of one query as independent.
    """
    steps = [(step.state, step.action) for episode in episodes for step in episode.steps]
    return proportion(*buffer.count_found_neighbours(steps[:: max(1, -(-len(steps) // QUERIES))]))
