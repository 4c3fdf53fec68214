"""Optimiser steps of our RL loop on recorded episodes; nothing is generated."""

from __future__ import annotations

import copy
import time
from collections import Counter
from collections.abc import Sequence
from typing import Any

from components.config import LoraConfig, RLConfig
from components.config.algorithm_config import GRPOConfig
from components.policy.policy import Policy
from components.policy.rl.algorithms.choose import make_algorithm
from components.policy.rl.loop import Loop
from components.policy.rl.players.player import Begun, PlayedBatch
from components.policy.rl.task_source import EvenTasks
from components.policy.rollout import Rollout
from components.records import Task
from flows.jobs.bench.recorded_batch import WARM_UP, Batch


class _RecordedPlayer:
    """A player that returns the same rollouts each time."""

    def __init__(self, rollouts: list[Rollout]) -> None:
        steps = sum(len(rollout.trajectory.steps) for rollout in rollouts)
        self._batch = PlayedBatch(rollouts, steps, 0, Counter(), 0.0)

    def play(self, policy: Policy, tasks: Sequence[Task], **_: Any) -> PlayedBatch:
        """Return the recorded rollouts, with the log-probabilities of the policy that played them."""
        return self._batch

    def begin(self, policy: Policy, tasks: Sequence[Task], **_: Any) -> Begun:
        """Return the same rollouts later."""
        return lambda: self._batch

    def close_begun(self) -> None:
        """Do nothing: nothing is played."""


def seconds_of_ours(batch: Batch, settings: RLConfig, steps: int, lora: LoraConfig = LoraConfig()) -> float:
    """Return the seconds of `steps` iterations, each with one optimiser step over all episodes.

    Args:
        settings: of which `batch_tokens` counts.
        lora: adapters that are trained; with rank 0 all weights are.
    """
    config = RLConfig(
        iterations=steps + WARM_UP,
        tasks=len(batch.rollouts) // batch.group,
        num_generations=batch.group,
        learning_rate=1e-6,
        demonstration_weight=0.0,
        batch_tokens=settings.batch_tokens,
        algorithm=GRPOConfig(
            optimizer_steps=1, idle_penalty=0.0, step_weight=0.0, negative_advantage_weight=1.0
        ),
    )
    policy = Policy(copy.deepcopy(batch.policy.model), batch.policy.vocabulary, compute=batch.policy.compute)
    task = batch.rollouts[0].trajectory.task
    loop = Loop(
        policy,
        _RecordedPlayer(batch.rollouts),
        EvenTasks([task]),
        make_algorithm(config, policy),
        config,
        max_steps=1,
        seed=0,
        lora=lora,
    )
    ends: list[float] = []
    loop.run(on_iteration=lambda *_: ends.append(time.perf_counter()))
    return ends[-1] - ends[WARM_UP - 1]
