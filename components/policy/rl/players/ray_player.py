"""Rollouts in dreams on a Ray cluster: the same shares and random streams as in processes of one machine."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from components.cluster.ray_workers import RayWorkers
from components.policy.rl.players.rollout_workers import DreamHost, DreamWorld, WorkersPlayer
from components.records import Transition

_LOG = logging.getLogger(__name__)


class RayPlayer(WorkersPlayer):
    """Plays rollouts in `count` workers of a Ray cluster, each with a world from `open_world()`.

    A lost worker is replaced: its successor remembers the same transitions and plays the lost share again
    from its seed, so the rollouts are those of a run without the loss. Only the answers are counted.

    Attributes:
        lost_workers: workers that were lost.
    """

    def __init__(self, count: int, open_world: Callable[[], DreamWorld], address: str) -> None:
        """Start the workers. Args: address: of the cluster (`ray_workers.connect`).

        Raises:
            ClusterError: the cluster cannot be used.
        """
        super().__init__(count)
        self.lost_workers = 0
        self._remembered: list[Transition] = []
        self._workers = RayWorkers(address, count, partial(DreamHost, open_world))

    def remember(self, transitions: Sequence[Transition]) -> None:
        """Add `transitions` to the buffer of every world."""
        super().remember(transitions)
        self._remembered += transitions

    def close(self) -> None:
        """End the workers. May be called twice."""
        self._workers.close()

    def _ask(self, method: str, requests: Sequence[tuple[Any, ...]]) -> list[Any]:
        answers = self._workers.call_surely(
            {place: (method, request) for place, request in enumerate(requests)}, self._prepare
        )
        return [answers[place] for place in range(len(requests))]

    def _prepare(self, place: int) -> None:
        """Tell a new worker what the lost one remembered."""
        self.lost_workers += 1
        _LOG.warning("worker %d of the rollouts was lost; its share is played again", place)
        if self._remembered:
            self._workers.call({place: ("remember", (self._remembered,))})
