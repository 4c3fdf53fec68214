"""Values that the pool, its worker processes and their tabs exchange: settings, observations, errors."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class PoolSettings:
    """The number of browsers, what they run, and how long a row may take before it counts as hung."""

    size: int
    executable: str
    elements: int
    page_seconds: float
    action_seconds: float
    stock: bool = False

    @property
    def patience_seconds(self) -> float:
        """Seconds without any answer after which a worker is replaced.

        Twice the longest time that a page within its limits can take.
        """
        return 2 * (self.page_seconds + self.action_seconds)


@dataclass(frozen=True)
class TabSettings:
    """The browser's wrapper, the most elements in a state, and the seconds for a page load and an action."""

    wrapper: Path
    elements: int
    page_seconds: float
    action_seconds: float


@dataclass(frozen=True)
class Observation:
    """What a step shows: the state, the outcome, the task's goal, and the actions that the state allows.

    `reward` is 1 for success, else 0. `raw_reward` is what the page or the evaluator itself gave: for some
    pages also a part of 1, or below 0.
    """

    state: str
    reward: float = 0.0
    done: bool = False
    goal: str = ""
    admissible: tuple[str, ...] = ()
    raw_reward: float = 0.0


@dataclass(frozen=True)
class Fork:
    """Alternative actions to try at one point of an episode of `spec`: after `history`, in `state`."""

    spec: Mapping[str, Any]
    history: tuple[str, ...]
    state: str
    alternatives: tuple[str, ...]


class ReplayDiverged(Exception):
    """A replayed episode reached another state than before, so its alternatives cannot be judged there."""


class PageLost(Exception):
    """The page or its browser ended. This is an infrastructure failure, never the agent's."""
