"""Recorded episodes for benchmarks of optimiser steps: groups of one policy in the real environment."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from components.config import Config
from components.environments import make_adapter
from components.errors import DataError
from components.policy.policy import Policy
from components.policy.rollout import Rollout, play
from components.policy.task_draws import draw_tasks, repeat_tasks
from components.trajectories.store import DataLayout, read_tasks

WARM_UP = 1
"""Optimiser steps that are not measured."""


@dataclass(frozen=True)
class Batch:
    """A policy and the episodes that it played; each `group` consecutive rollouts are of one task."""

    policy: Policy
    rollouts: list[Rollout]
    group: int

    @property
    def tokens(self) -> int:
        """Number of tokens of all episodes."""
        return sum(len(rollout.example) for rollout in self.rollouts)


def play_batch(config: Config, data: DataLayout, directory: Path, tasks: int) -> Batch:
    """Play a group for each of `tasks` training tasks in the real environment; keep those with variance.

    Raises:
        DataError: no group has both a success and a failure.
    """
    settings = config.rl.dream
    policy = Policy.load(directory, max_new_tokens=settings.max_new_tokens)
    chosen = repeat_tasks(
        draw_tasks(read_tasks(data.tasks("train")), tasks, config.seed), settings.num_generations
    )
    world = make_adapter(config.environment).open()
    try:
        rollouts = play(
            policy,
            world,
            chosen,
            max_steps=config.environment.max_steps,
            temperature=settings.temperature,
            seed=config.seed,
        )
    finally:
        world.close()
    groups = [
        rollouts[start : start + settings.num_generations]
        for start in range(0, len(rollouts), settings.num_generations)
    ]
    mixed = [group for group in groups if len({rollout.reward for rollout in group}) > 1]
    if not mixed:
        problem = f"No group of {len(groups)} has both a success and a failure."
        raise DataError(
            problem,
            "Expected at least one: nothing can be learnt from the others.",
            "Raise --tasks, or name a policy that sometimes succeeds.",
        )
    return Batch(policy, [rollout for group in mixed for rollout in group], settings.num_generations)
