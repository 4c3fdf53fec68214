"""The rollouts of each iteration: played when they are asked for, or ahead, during the updates before.

With `rl.dream.staleness` k, the rollouts of iteration j are begun during iteration j - k, after its rollouts
were remembered and before its update: with the weights of that time, which are k updates old when the
rollouts are trained on. Truncated importance weights correct for it (`sampler_correction.py`). Up to k
iterations are in the making at once, and a process that has played its share of one goes on with the next.

The first iteration begins the rollouts of the k after it. Which weights play depends on the numbers of
iterations alone, not on speed. So a resumed loop plays rollouts that were in the making again, with the same
weights and the same buffer, and comes to the same numbers.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from torch import Tensor

from components.config.rl_config import RLConfig
from components.policy.policy import Policy
from components.policy.rl.players.player import Begun, Player
from components.policy.rl.task_source import TaskSource
from components.policy.rollout import Rollout, Stamp
from components.records import Task


def begun_during(iteration: int, staleness: int) -> int:
    """Return the iteration during which the rollouts of `iteration` (from 1) are begun."""
    return max(0, iteration - staleness)


def remembered_iterations(finished: int, staleness: int) -> int:
    """Return how many iterations' rollouts a resumed loop's worlds remember before it plays.

    With rollouts ahead these are fewer than the finished ones: the next rollouts were begun before.
    """
    return begun_during(finished, staleness) + 1 if staleness and finished else finished


@dataclass
class Played:
    """Rollouts of an iteration, the steps in the world and the seconds that they took, and who played.

    `staleness` is the number of updates of the trained policy since it played, `tokens` what it generated.
    """

    rollouts: list[Rollout]
    interactions: int
    seconds: float
    policy: Policy
    staleness: int = 0
    tokens: int = 0


@dataclass
class _Ahead:
    """Rollouts of an iteration in the making, with the weights that `updates` updates led to."""

    iteration: int
    updates: int
    rows: list[Task]
    weights: dict[str, Tensor]
    policy: Policy
    take: Begun


class RolloutSource:
    """Plays a group of rollouts for each task of an iteration.

    Args:
        player: plays rollouts in the world.
        tasks: gives the tasks of each iteration.
        config: how many tasks and rollouts, and the temperature.
        max_steps: step limit of an episode.
        seed: of the loop.
        stamp: origin that is written into the transitions.
    """

    def __init__(
        self, player: Player, tasks: TaskSource, config: RLConfig, *, max_steps: int, seed: int, stamp: Stamp
    ) -> None:
        self._player = player
        self._tasks = tasks
        self._config = config
        self._max_steps = max_steps
        self._seed = seed
        self._stamp = stamp
        self._ahead = deque[_Ahead]()
        self._has_begun = False

    def number(self, iteration: int) -> int:
        """Return the number of an iteration's random streams."""
        return self._seed * 10_007 + iteration

    def take(self, iteration: int, acting_policy: Callable[[], Policy]) -> Played:
        """Return the rollouts of an iteration: those that were begun, or new ones of `acting_policy()`."""
        if not self._ahead:
            policy, rows = acting_policy(), self._draw(iteration)
            started, tokens = time.monotonic(), policy.tokens
            batch = self._player.play(policy, rows, **self._options(iteration))
            seconds, tokens = time.monotonic() - started, policy.tokens - tokens
            return Played(batch.rollouts, batch.interactions, seconds, policy, tokens=tokens)
        ahead = self._ahead[0]
        batch = ahead.take()
        self._ahead.popleft()
        staleness = iteration - ahead.updates
        tokens = ahead.policy.tokens
        return Played(batch.rollouts, batch.interactions, batch.seconds, ahead.policy, staleness, tokens)

    def missing(self, iteration: int, staleness: int) -> list[int]:
        """Return the iterations whose rollouts are to be begun during `iteration`."""
        first = self._ahead[-1].iteration + 1 if self._ahead else iteration + 1
        return list(range(first, min(iteration + staleness, self._config.iterations - 1) + 1))

    def begin(
        self,
        iteration: int,
        updates: int,
        policy: Policy,
        weights: Mapping[str, Tensor],
        rows: Sequence[Task] = (),
    ) -> None:
        """Begin the rollouts of an iteration with the present weights of `policy`.

        Args:
            updates: number of updates that led to these weights.
            weights: the trained ones of them, by name.
            rows: tasks of rollouts that are played again; none: they are drawn.
        """
        drawn = list(rows) or self._draw(iteration)
        kept_weights = {name: weight.detach().clone() for name, weight in weights.items()}
        pinned = policy.pinned()
        self._has_begun = True
        take = self._player.begin(pinned, drawn, **self._options(iteration))
        self._ahead.append(_Ahead(iteration, updates, drawn, kept_weights, pinned, take))

    def close(self) -> None:
        """End rollouts that were begun and that nobody takes."""
        if self._has_begun:
            self._player.close_begun()
            self._ahead.clear()

    def state_dict(self) -> list[dict[str, Any]]:
        """Return iteration, updates, weights, and a task per rollout, of what was begun, in its order."""
        return [
            {
                "iteration": ahead.iteration,
                "updates": ahead.updates,
                "tasks": [asdict(task) for task in ahead.rows],
                "weights": ahead.weights,
            }
            for ahead in self._ahead
        ]

    def _draw(self, iteration: int) -> list[Task]:
        config = self._config
        return self._tasks.sample_rows(config.tasks, config.num_generations, self.number(iteration))

    def _options(self, iteration: int) -> dict[str, Any]:
        return {
            "max_steps": self._max_steps,
            "temperature": self._config.temperature,
            "seed": self.number(iteration),
            "stamp": self._stamp,
        }
