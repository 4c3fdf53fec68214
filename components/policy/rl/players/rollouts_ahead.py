"""The rollouts of each iteration: played when they are asked for, or ahead, during the update before.

Rollouts ahead are played in a thread, with the policy before the update. They are one update old when they
are trained on; truncated importance weights correct for it (`sampler_correction.py`). A resumed loop plays
them again with the same weights.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import Tensor

from components.config.rl_config import RLConfig
from components.policy.policy import Policy
from components.policy.rl.players.rollout_workers import Player
from components.policy.rl.task_source import TaskSource
from components.policy.rollout import Rollout, Stamp
from components.policy.task_draws import repeat_tasks
from components.records import Task


@dataclass
class Played:
    """Rollouts of an iteration, the steps in the world and the seconds that they took, and who played.

    `is_stale` is True if the trained policy has been updated since.
    """

    rollouts: list[Rollout]
    interactions: int
    seconds: float
    policy: Policy
    is_stale: bool = False


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
        self._ahead: _Ahead | None = None

    def number(self, iteration: int) -> int:
        """Return the number of an iteration's random streams."""
        return self._seed * 10_007 + iteration

    def take(self, iteration: int, acting_policy: Callable[[], Policy]) -> Played:
        """Return the rollouts of an iteration: those that were begun, or new ones of `acting_policy()`."""
        if self._ahead is not None:
            ahead, self._ahead = self._ahead, None
            return ahead.result()
        return self._play(acting_policy(), self._draw(iteration), iteration)

    def begin(
        self,
        iteration: int,
        policy: Policy,
        weights: Mapping[str, Tensor],
        count_tokens: Callable[[], int],
        tasks: Sequence[Task] = (),
    ) -> int:
        """Begin the rollouts of an iteration with the present weights of `policy`.

        Args:
            weights: the trained ones of them, by name.
            count_tokens: returns the number of tokens generated so far.
            tasks: of rollouts that are played again; none: they are drawn.

        Returns:
            The number of tokens before the first one of these rollouts.
        """
        drawn = list(tasks) or self._draw(iteration)
        kept_weights = {name: weight.detach().clone() for name, weight in weights.items()}
        pinned = policy.pinned()
        tokens = count_tokens()
        self._ahead = _Ahead(drawn, kept_weights, pinned, lambda: self._play(pinned, drawn, iteration))
        return tokens

    def close(self) -> None:
        """End rollouts that were begun and that nobody takes."""
        if self._ahead is not None:
            self._ahead.cancel()
            self._ahead = None

    def state_dict(self) -> dict[str, Any]:
        """Return the tasks and the weights of rollouts that were begun; empty if there are none."""
        if self._ahead is None:
            return {}
        return {"tasks": [asdict(task) for task in self._ahead.tasks], "weights": self._ahead.weights}

    def _draw(self, iteration: int) -> list[Task]:
        return self._tasks.sample(self._config.tasks, self.number(iteration))

    def _play(self, policy: Policy, tasks: list[Task], iteration: int) -> Played:
        interactions_before = self._player.interactions
        started = time.monotonic()
        rollouts = self._player.play(
            policy,
            repeat_tasks(tasks, self._config.num_generations),
            max_steps=self._max_steps,
            temperature=self._config.temperature,
            seed=self.number(iteration),
            stamp=self._stamp,
        )
        seconds = time.monotonic() - started
        return Played(rollouts, self._player.interactions - interactions_before, seconds, policy)


class _Ahead:
    """Rollouts in the making, in a thread with as many threads of torch as this one."""

    def __init__(
        self, tasks: list[Task], weights: dict[str, Tensor], policy: Policy, play: Callable[[], Played]
    ) -> None:
        self.tasks = tasks
        self.weights = weights
        self._policy = policy
        self._play = play
        self._played: Played | None = None
        self._error: BaseException | None = None
        self._thread_count = torch.get_num_threads()
        self._thread = threading.Thread(target=self._run, name="rollouts-ahead", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        torch.set_num_threads(self._thread_count)
        torch.set_flush_denormal(True)
        try:
            self._played = self._play()
        except BaseException as error:  # raised by `result`
            self._error = error

    def cancel(self) -> None:
        """End the rollouts at their next step, and wait for it."""
        self._policy.is_interrupted = True
        self._thread.join()

    def result(self) -> Played:
        """Wait for the rollouts; raises what playing raised."""
        self._thread.join()
        if self._error is not None:
            raise self._error
        assert self._played is not None
        self._played.is_stale = True
        return self._played
