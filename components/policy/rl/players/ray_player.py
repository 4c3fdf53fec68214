"""Rollouts in dreams on a Ray cluster: the same shares and random streams as in processes of one machine."""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial
from typing import Any

from components.cluster.ray_workers import RayWorkers
from components.policy.rl.players.player import DreamWorld
from components.policy.rl.players.rollout_workers import DreamHost, WorkersPlayer
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
        self._remembered: list[list[Transition]] = [[] for _ in range(count)]
        self._workers = RayWorkers(address, count, partial(DreamHost, open_world))

    def close(self) -> None:
        """End the workers. May be called twice."""
        super().close()
        self._workers.close()

    def _ask(self, place: int, method: str, arguments: tuple[Any, ...]) -> Any:
        answer = self._workers.call_surely({place: (method, arguments)}, self._prepare)[place]
        if method == "remember":
            self._remembered[place] += arguments[0]
        return answer

    def _prepare(self, place: int) -> None:
        """Tell a new worker what the lost one remembered."""
        self.lost_workers += 1
        _LOG.warning("worker %d of the rollouts was lost; its share is played again", place)
        if self._remembered[place]:
            self._workers.call({place: ("remember", (self._remembered[place],))})
