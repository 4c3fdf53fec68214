"""The RL loop: sample tasks, play groups of rollouts, update the policy; the same in a dream and in reality.

An algorithm (`algorithm.py`) turns rollouts into training samples and these into a loss; the learner
(`learner.py`) takes the optimiser steps. The state after each iteration (policy, optimiser, algorithm, task
source, figures) is saved atomically and random streams are numbered by iteration, so an interrupted loop
continues with the same numbers.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from components.config.lora_config import LoraConfig
from components.config.rl_config import RLConfig
from components.environments.retry import RETRY_ADVICE
from components.errors import EnvironmentFailure, TrainingError
from components.language.adapters import add_lora, merge_lora, merged_copy
from components.language.backbone import save_model
from components.language.training.checkpoints import (
    checkpoint_limit,
    model_checkpoint_limit,
    read_checkpoint,
    save_checkpoint,
)
from components.language.training.examples import Example
from components.policy.policy import Policy
from components.policy.rl.algorithm import Algorithm, TrainingSample
from components.policy.rl.algorithms import learner_class
from components.policy.rl.learner import DEMONSTRATION_LOSS
from components.policy.rl.rollout_workers import Player
from components.policy.rl.task_source import TaskSource
from components.policy.rollout import Rollout, Stamp, repeat_tasks

MAX_ITERATIONS_WITHOUT_SIGNAL = 8
"""Consecutive iterations without anything to learn after which the loop gives up."""
COLLAPSE_WINDOW, COLLAPSE_ROLLOUTS, COLLAPSE_SHARE = 4, 128, 0.5
"""A policy has collapsed if its mean success over the last COLLAPSE_WINDOW iterations is below COLLAPSE_SHARE
of the first ones'. Earlier, half of the iterations so far are compared, if they have COLLAPSE_ROLLOUTS
rollouts.
"""
UPDATE_FIGURES = ("loss", "logprob_gap", "policy_entropy", "gradient_norm")
"""Figures of an update; NaN in an iteration without one, so that every curve has a value per iteration."""

CHECKPOINT_KEYS = {"policy", "optimizers", "own_optimizers", "algorithm", "tasks", "state"}
"""Keys of a checkpoint."""


@dataclass
class LoopState:
    """Progress of a loop.

    Args:
        interactions: steps in the world so far.
        iterations_without_signal: consecutive ones in which there was nothing to learn.
        tokens: generated so far.
        series: figure -> one value per iteration.
    """

    iteration: int = 0
    interactions: int = 0
    iterations_without_signal: int = 0
    tokens: int = 0
    series: dict[str, list[float]] = field(default_factory=dict)


@dataclass(frozen=True)
class Snapshots:
    """Saves copies of the policy to `directory` every `every` iterations, named by iteration: `0004`."""

    directory: Path
    every: int

    def keep(self, policy: Policy, iteration: int) -> None:
        """Save the policy after `iteration` if it is due."""
        if iteration % self.every == 0:
            save_model(merged_copy(policy.model), policy.vocabulary, self.directory / f"{iteration:04d}")


class Loop:
    """One RL stage. Build it, then `run`."""

    def __init__(
        self,
        policy: Policy,
        player: Player,
        tasks: TaskSource,
        algorithm: Algorithm,
        config: RLConfig,
        *,
        max_steps: int,
        seed: int,
        lora: LoraConfig = LoraConfig(),
        stamp: Stamp = Stamp(),
        checkpoint: Path | None = None,
        training_context: Callable[[], AbstractContextManager[Any]] = nullcontext,
        demonstrations: Sequence[Example] = (),
        snapshots: Snapshots | None = None,
        tokens: Callable[[], int] = lambda: 0,
    ) -> None:
        """Args:
        player: plays rollouts in the world.
        lora: adapters that are trained in place of all weights.
        stamp: origin of the transitions, kept with them.
        updating: context of each update (training may gain from more threads than decoding).
        demonstrations: for `demonstration_weight`; required if it is above 0.
        snapshots: which copies of the policy are kept, and where.
        tokens: returns the tokens that all models together have generated since this process began.
        """
        if config.demonstration_weight and not demonstrations:
            raise TrainingError(
                f"demonstration_weight is {config.demonstration_weight:g}, but there is no demonstration.",
                next_step="Set demonstration_weight=0.",
            )
        self.policy, self.player, self.tasks = policy, player, tasks
        self.algorithm, self.config = algorithm, config
        self.max_steps, self.seed = max_steps, seed
        self.stamp, self.checkpoint = stamp, checkpoint
        self.training_context = training_context
        self.snapshots, self._tokens = snapshots, tokens
        policy.max_new_tokens = config.max_new_tokens
        policy.model = add_lora(policy.model, lora, seed=seed)
        self.learner = learner_class(config).on_all_ranks(policy, algorithm, config, demonstrations)
        algorithm.start(policy, config)
        self.state = LoopState()

    def run(
        self,
        *,
        budget: int | None = None,
        on_rollouts: Callable[[int, list[Rollout]], dict[str, float] | None] | None = None,
        on_iteration: Callable[[int, dict[str, float]], None] | None = None,
    ) -> LoopState:
        """Run all remaining iterations, or as many as are sure to fit `budget`; adapters are merged at the
        end.

        Args:
            budget: interactions in the world; None: no limit.
            on_rollouts: called with each iteration's number (from 0) and rollouts; may return figures.
            on_iteration: called with the number of finished iterations and the figures of the last one.

        Raises:
            TrainingError: a loss is not finite, there is nothing to learn for many iterations, or the policy
                collapsed.
        """
        self._resume()
        earlier_tokens = self.state.tokens - self._tokens()
        rows = self.config.tasks * self.config.num_generations
        while self.state.iteration < self.config.iterations:
            if budget is not None and self.state.interactions + rows * self.max_steps > budget:
                break
            figures = self._iterate(on_rollouts)
            for name, value in figures.items():
                self.state.series.setdefault(name, []).append(value)
            self.state.iteration += 1
            self.state.tokens = earlier_tokens + self._tokens()
            self._check_collapse()  # before it is saved: a resumed loop must see it again
            if self.snapshots:
                self.snapshots.keep(self.policy, self.state.iteration)
            self._save()
            if on_iteration:
                on_iteration(self.state.iteration, figures)
        self.policy.model = merge_lora(self.policy.model)
        return self.state

    def _iterate(
        self, on_rollouts: Callable[[int, list[Rollout]], dict[str, float] | None] | None
    ) -> dict[str, float]:
        """Play the rollouts of one iteration and update the policy; returns the figures."""
        number = self.seed * 10_007 + self.state.iteration
        started = time.monotonic()
        tasks = self.tasks.sample(self.config.tasks, number)
        interactions_before = self.player.interactions
        play_started = time.monotonic()
        acting_policy = self.algorithm.acting_policy(self.policy, self.state.iteration)
        rollouts = self.player.play(
            acting_policy,
            repeat_tasks(tasks, self.config.num_generations),
            max_steps=self.max_steps,
            temperature=self.config.temperature,
            seed=number,
            stamp=self.stamp,
        )
        seconds = time.monotonic() - play_started
        self.state.interactions += self.player.interactions - interactions_before
        further_figures = (on_rollouts(self.state.iteration, rollouts) if on_rollouts else None) or {}
        size = self.config.num_generations
        played_groups = [rollouts[place : place + size] for place in range(0, len(rollouts), size)]
        # Where the world broke or the dream had no answer, the policy is not at fault: counted, not learnt.
        groups = [[r for r in group if not (r.broken or r.unparsable)] for group in played_groups]
        figures = self._describe(rollouts, groups, interactions_before) | further_figures
        figures["steps_per_second"] = figures["interactions"] / seconds
        returns = {
            group[0].trajectory.task.id: (group[0].trajectory.task, [r.reward for r in group])
            for group in groups
            if group
        }
        figures |= self.tasks.report(returns, number)
        samples = self.algorithm.training_samples(groups, self.policy)
        figures["lessons"] = float(len(samples))
        self._count_signal(any(sample.has_signal for sample in samples))
        figures |= self._update(samples, number, is_own=acting_policy is self.policy)
        return figures | {"seconds": time.monotonic() - started}

    def _update(self, samples: list[TrainingSample], seed: int, *, is_own: bool) -> dict[str, float]:
        """The learner's steps on the samples. Args: is_own: the trained policy itself has played."""
        if not samples:
            own = (DEMONSTRATION_LOSS,) if self.config.demonstration_weight else ()
            return dict.fromkeys((*UPDATE_FIGURES, *self.algorithm.figures, *own), math.nan)
        rate = self.learner.learning_rate(self.state.iteration)
        on_policy = is_own and self.learner.is_on_policy
        with self.training_context():
            prepared = self.algorithm.prepare_update(samples)
            try:
                return self.learner.learn(prepared, seed, rate, on_policy=on_policy)
            except TrainingError as error:
                found = f"Iteration {self.state.iteration}: {error.found}"
                raise TrainingError(found, error.expected, error.next_step) from error

    def _describe(
        self, rollouts: list[Rollout], groups: list[list[Rollout]], before: int
    ) -> dict[str, float]:
        steps = [step for r in rollouts for step in r.trajectory.steps]
        compared = groups if self.config.num_generations > 1 else [[r for group in groups for r in group]]
        flat = sum(len({r.reward for r in group}) < 2 for group in compared)
        whole = [r.reward for r in rollouts if not r.broken]
        if not whole:
            found = (
                f"All {len(rollouts)} episodes of this iteration failed for infrastructure reasons, such as "
                f"{rollouts[0].trajectory.task.id}: {rollouts[0].failure}"
            )
            raise EnvironmentFailure(found, "Expected some complete episodes.", RETRY_ADVICE)
        return {
            "success_rate": sum(whole) / len(whole),
            "return_mean": sum(whole) / len(whole),
            "episode_length": len(steps) / len(rollouts),
            "zero_variance_groups": flat / len(compared),
            "idle_steps": sum(sum(r.idle) for r in rollouts) / max(1, len(steps)),
            "malformed_actions": sum(r.malformed for r in rollouts) / max(1, len(steps)),
            "cut_replies": sum(r.cut for r in rollouts) / max(1, len(steps)),
            "overlong_episodes": sum(r.overlong for r in rollouts) / len(rollouts),
            "unparsable_episodes": sum(r.unparsable for r in rollouts) / len(rollouts),
            "broken_episodes": sum(r.broken for r in rollouts) / len(rollouts),
            "generated_task_share": sum(r.trajectory.task.generated for r in rollouts) / len(rollouts),
            "interactions": float(self.player.interactions - before),
        }

    def _count_signal(self, has_signal: bool) -> None:
        count = 0 if has_signal else self.state.iterations_without_signal + 1
        self.state.iterations_without_signal = count
        if count >= MAX_ITERATIONS_WITHOUT_SIGNAL:
            raise TrainingError(
                f"All advantages were zero for {count} consecutive iterations: there is nothing to learn.",
                "Expected tasks that the policy sometimes solves and sometimes does not.",
                "Raise the stage's temperature or num_generations, or clone more (cloning.demonstrations).",
            )

    def _check_collapse(self) -> None:
        """Stop if the policy succeeds far less often than at the start: later iterations do not recover
        it.
        """
        rates = self.state.series["success_rate"]
        window = min(COLLAPSE_WINDOW, len(rates) // 2)
        if (
            window < COLLAPSE_WINDOW
            and window * self.config.tasks * self.config.num_generations < COLLAPSE_ROLLOUTS
        ):
            return
        first, last = (sum(part) / window for part in (rates[:window], rates[-window:]))
        if first >= 0.1 and last < COLLAPSE_SHARE * first:
            raise TrainingError(
                f"The policy collapsed: its success rate is {last:.2f} over the last {window} iterations, "
                f"{first:.2f} over the first.",
                f"Expected at least {COLLAPSE_SHARE:g} times the first.",
                "Lower the stage's learning_rate or the algorithm's optimizer_steps, or set the algorithm's "
                "beta (KL divergence from the initial policy).",
            )

    def _save(self) -> None:
        if self.checkpoint is None:
            return
        save_checkpoint(self.checkpoint, self.state_dict())

    def _resume(self) -> None:
        if self.checkpoint is not None and self.checkpoint.is_file():
            self.load_state_dict(_read(self.checkpoint, model_checkpoint_limit(self.policy.model)))

    def state_dict(self) -> dict[str, Any]:
        """State that the remaining iterations depend on."""
        return self.learner.state_dict() | {"tasks": self.tasks.state_dict(), "state": self.state.__dict__}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue from `state`."""
        self.learner.restore(
            {name: state[name] for name in ("policy", "optimizers", "own_optimizers", "algorithm")}
        )
        self.tasks.load_state_dict(state["tasks"])
        self.state = LoopState(**state["state"])


def read_iteration_count(checkpoint: Path, weights: int = 0) -> int:
    """Finished iterations of a checkpoint; 0 without one. Args: weights: of its policy, to bound its size."""
    return (
        int(_read(checkpoint, checkpoint_limit(weights))["state"]["iteration"]) if checkpoint.is_file() else 0
    )


def _read(checkpoint: Path, limit: int) -> dict[str, Any]:
    state = read_checkpoint(checkpoint, limit)
    if not isinstance(state, dict) or state.keys() != CHECKPOINT_KEYS:
        found = f"{checkpoint} is not the checkpoint of an RL loop."
        raise TrainingError(
            found,
            f"Expected {', '.join(sorted(CHECKPOINT_KEYS))} in it.",
            f"Delete {checkpoint} to train from the start.",
        )
    return state
