"""The RL loop: sample tasks, play groups of rollouts, update the policy; the same in a dream and in the real
world.

An algorithm (`algorithm.py`) makes lessons of rollouts and a loss of lessons; everything else is here. The
state after each iteration (policy, optimiser, algorithm, task source, figures) is saved atomically, random
streams are numbered by iteration, and a loop that was stopped goes on where it was with the same numbers.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import torch

from components.config.training_config import RLConfig
from components.environments.retry import AGAIN
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
from components.policy.rl.algorithm import Algorithm, Lesson
from components.policy.rl.learner import DEMONSTRATION_LOSS, Learner
from components.policy.rl.reference import Reference
from components.policy.rl.rollout_workers import Player
from components.policy.rollout import Rollout, Stamp, evenly, grouped
from components.records import Task

BARREN_ITERATIONS = 8
"""Iterations on end without anything to learn from after which the loop gives up."""
COLLAPSE_WINDOW, COLLAPSE_ROLLOUTS, COLLAPSE_SHARE = 4, 128, 0.5
"""Iterations whose mean success is compared (half of those so far, where they are fewer and have so many
rollouts), and the share of the first ones' below which the policy has collapsed.
"""
UPDATE_FIGURES = ("loss", "logprob_gap", "policy_entropy", "gradient_norm")
"""Figures of an update; NaN in an iteration that had none, so that every curve has a value an iteration."""

PARTS = {"policy", "optimizers", "beside", "algorithm", "tasks", "state"}
"""What a checkpoint holds."""


class TaskSource(Protocol):
    """Where the loop's tasks come from, and who learns how they went."""

    def sample(self, count: int, seed: int) -> list[Task]:
        """`count` tasks for an iteration."""
        ...

    def report(self, returns: dict[str, tuple[Task, list[float]]], seed: int) -> dict[str, float]:
        """Take in the returns of each task's group; figures to log."""
        ...

    def state_dict(self) -> dict[str, Any]:
        """What must survive a crash."""
        ...

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from `state`."""
        ...


class EvenTasks:
    """Tasks drawn evenly from a fixed list."""

    def __init__(self, tasks: Sequence[Task]) -> None:
        self._tasks = list(tasks)

    def sample(self, count: int, seed: int) -> list[Task]:
        """`count` tasks."""
        return evenly(self._tasks, count, seed)

    def report(self, returns: dict[str, tuple[Task, list[float]]], seed: int) -> dict[str, float]:
        """Nothing to learn."""
        return {}

    def state_dict(self) -> dict[str, Any]:
        """No state."""
        return {}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """No state."""


@dataclass
class LoopState:
    """The place reached, the `tokens` sampled on the way, and the figures of each iteration so far, name ->
    one value an iteration.
    """

    iteration: int = 0
    interactions: int = 0
    barren: int = 0
    tokens: int = 0
    series: dict[str, list[float]] = field(default_factory=dict)


@dataclass(frozen=True)
class Snapshots:
    """Copies of the policy in `directory`, one every `every` iterations, named by their number: `0004`."""

    directory: Path
    every: int

    def keep(self, policy: Policy, iteration: int) -> None:
        """Write the policy as it is behind `iteration`, if it is one of those."""
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
        stamp: Stamp = Stamp(),
        checkpoint: Path | None = None,
        updating: Callable[[], AbstractContextManager[Any]] = nullcontext,
        demonstrations: Sequence[Example] = (),
        snapshots: Snapshots | None = None,
        tokens: Callable[[], int] = lambda: 0,
    ) -> None:
        """Args:
        tokens: how many all models together have sampled since this process began; what is counted is saved
        with the state.
        snapshots: which policies on the way are kept, and where.
        updating: entered around each update (training may gain from more threads than decoding).
        demonstrations: what `demonstration_weight` mixes in; needed where that is above 0.
        """
        if config.demonstration_weight and not demonstrations:
            raise TrainingError(
                "demonstration_weight is set, and there is no demonstration.",
                next_step="Set demonstration_weight=0.",
            )
        self.policy, self.player, self.tasks, self.algorithm, self.config = (
            policy,
            player,
            tasks,
            algorithm,
            config,
        )
        self.updating = updating
        self.max_steps, self.seed, self.stamp, self.checkpoint = max_steps, seed, stamp, checkpoint
        policy.max_new_tokens = config.max_new_tokens
        policy.model = add_lora(policy.model, config.lora, seed=seed)
        self.snapshots, self._tokens = snapshots, tokens
        self.learner = Learner.everywhere(policy, algorithm, config, demonstrations)
        self._reference = Reference(policy, config.temperature, config.batch_tokens) if config.kl else None
        self.state = LoopState()
        aside = self.learner.trained() if config.interpolation < 1 else {}
        # In the main memory: it is needed once, at the end.
        self._start = {name: weight.detach().to("cpu", copy=True) for name, weight in aside.items()}

    def run(
        self,
        *,
        budget: int | None = None,
        on_rollouts: Callable[[int, list[Rollout]], dict[str, float] | None] | None = None,
        on_iteration: Callable[[int, dict[str, float]], None] | None = None,
    ) -> LoopState:
        """All iterations that remain, or as many as `budget` interactions surely allow; `on_rollouts` may add
        figures.

        Raises:
            TrainingError: a loss that is not finite, nothing to learn from for many iterations on end, or a
                policy that collapsed.
        """
        self._resume()
        sampled = self.state.tokens - self._tokens()
        rows = self.config.tasks * self.config.group
        while self.state.iteration < self.config.iterations:
            if budget is not None and self.state.interactions + rows * self.max_steps > budget:
                break
            figures = self._iterate(on_rollouts)
            for name, value in figures.items():
                self.state.series.setdefault(name, []).append(value)
            self.state.iteration, self.state.tokens = self.state.iteration + 1, sampled + self._tokens()
            self._check_collapse()  # before it is saved: typed again, the command finds it again
            if self.snapshots:
                self.snapshots.keep(self.policy, self.state.iteration)
            self._save()
            if on_iteration:
                on_iteration(self.state.iteration, figures)
        return self.state

    def interpolate(self) -> None:
        """Call once, when all is run: the policy becomes `interpolation` of the way from its first to its
        last weights, without adapters.

        WiSE-FT (Wortsman et al. 2022, arXiv 2109.01903), which averages a model before and after fine-tuning:
        what few tasks taught stays, what was unlearnt beside it comes back. Adapters change the weights by B
        A, and B begins at zero: a share of the way is that share of B, with A as it is in the end.
        """
        last, share = self.learner.trained(), self.config.interpolation
        with torch.no_grad():
            for name, first in self._start.items():
                if "lora_A" not in name:
                    last[name].copy_(torch.lerp(first.to(last[name].device), last[name], share))
        self.policy.model = merge_lora(self.policy.model)

    def _iterate(
        self, on_rollouts: Callable[[int, list[Rollout]], dict[str, float] | None] | None
    ) -> dict[str, float]:
        number, started = self.seed * 10_007 + self.state.iteration, time.monotonic()
        tasks = self.tasks.sample(self.config.tasks, number)
        before, began = self.player.interactions, time.monotonic()
        acting = self.algorithm.acting(self.policy, self.state.iteration)
        rollouts = self.player.play(
            acting,
            grouped(tasks, self.config.group),
            max_steps=self.max_steps,
            temperature=self.config.temperature,
            seed=number,
            stamp=self.stamp,
        )
        seconds = time.monotonic() - began
        self.state.interactions += self.player.interactions - before
        told = (on_rollouts(self.state.iteration, rollouts) if on_rollouts else None) or {}
        size = self.config.group
        # Where the world broke or the dream had no answer the policy is not to blame: counted, and nothing is
        # learnt from it.
        whole = [rollouts[place : place + size] for place in range(0, len(rollouts), size)]
        groups = [[r for r in group if not (r.broken or r.unparsable)] for group in whole]
        figures = self._describe(rollouts, groups, before) | told
        figures["steps_per_second"] = figures["interactions"] / seconds
        returns = {
            group[0].trajectory.task.id: (group[0].trajectory.task, [r.reward for r in group])
            for group in groups
            if group
        }
        figures |= self.tasks.report(returns, number)
        lessons = self.algorithm.lessons(groups, self.policy)
        figures["lessons"] = float(len(lessons))
        self._count_barren(any(lesson.telling for lesson in lessons))
        if lessons:
            with self.updating():
                on_policy = acting is self.policy and not self.algorithm.anew
                figures |= self._learnt(self._referred(lessons), number, on_policy=on_policy)
        else:
            own = (DEMONSTRATION_LOSS,) if self.config.demonstration_weight else ()
            figures |= dict.fromkeys((*UPDATE_FIGURES, *self.algorithm.figures, *own), math.nan)
        return figures | {"seconds": time.monotonic() - started}

    def _referred(self, lessons: list[Lesson]) -> list[Lesson]:
        """The lessons with the log-probabilities of the policy that training began with, if its distance
        counts.
        """
        if self._reference is None:
            return lessons
        known = iter(self._reference.logprobs([rollout for lesson in lessons for rollout in lesson.rollouts]))
        return [
            Lesson(
                lesson.rollouts,
                lesson.targets | {"reference": [value for _ in lesson.rollouts for value in next(known)]},
            )
            for lesson in lessons
        ]

    def _describe(
        self, rollouts: list[Rollout], groups: list[list[Rollout]], before: int
    ) -> dict[str, float]:
        steps = [step for r in rollouts for step in r.trajectory.steps]
        compared = groups if self.config.group > 1 else [[r for group in groups for r in group]]
        flat = sum(len({r.reward for r in group}) < 2 for group in compared)
        whole = [r.reward for r in rollouts if not r.broken]
        if not whole:
            found = (
                f"Each of {len(rollouts)} episodes of this iteration broke, as "
                f"{rollouts[0].trajectory.task.id}: {rollouts[0].failure}"
            )
            raise EnvironmentFailure(found, "Expected some that can be learnt from.", AGAIN)
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

    def _count_barren(self, fertile: bool) -> None:
        self.state.barren = 0 if fertile else self.state.barren + 1
        if self.state.barren >= BARREN_ITERATIONS:
            raise TrainingError(
                f"In {BARREN_ITERATIONS} iterations on end no rollout was worth more than what it is "
                "compared with: nothing to learn.",
                "Expected tasks that the policy sometimes solves and sometimes does not.",
                "Raise the stage's temperature or group, or clone more (cloning.demonstrations).",
            )

    def _check_collapse(self) -> None:
        """A policy that wins far less than at its beginning has unlearnt more than later iterations give
        back.
        """
        rates = self.state.series["success_rate"]
        window = min(COLLAPSE_WINDOW, len(rates) // 2)
        if window < COLLAPSE_WINDOW and window * self.config.tasks * self.config.group < COLLAPSE_ROLLOUTS:
            return
        first, last = (sum(part) / window for part in (rates[:window], rates[-window:]))
        if first >= 0.1 and last < COLLAPSE_SHARE * first:
            raise TrainingError(
                f"The policy collapsed: it wins {last:.2f} of the last {window} iterations' rollouts, "
                f"{first:.2f} of the first.",
                f"Expected at least {COLLAPSE_SHARE:g} times as many.",
                "Lower the stage's learning_rate, epochs or updates, or hold on to the first policy (kl).",
            )

    def _learnt(self, lessons: list[Lesson], seed: int, *, on_policy: bool) -> dict[str, float]:
        try:
            return self.learner.learn(lessons, seed, self._rate(), on_policy=on_policy)
        except TrainingError as error:
            raise TrainingError(
                f"Iteration {self.state.iteration}: {error.found}", error.expected, error.next_step
            ) from error

    def _rate(self) -> float:
        """The learning rate of this iteration: constant, or falling in a straight line towards zero over all
        iterations.
        """
        if self.algorithm.anew:
            return self.config.rft.learning_rate
        if self.config.schedule == "constant":
            return self.config.learning_rate
        return self.config.learning_rate * (1 - self.state.iteration / self.config.iterations)

    def _save(self) -> None:
        if self.checkpoint is None:
            return
        save_checkpoint(self.checkpoint, self.state_dict())

    def _resume(self) -> None:
        if self.checkpoint is not None and self.checkpoint.is_file():
            self.load_state_dict(_read(self.checkpoint, model_checkpoint_limit(self.policy.model)))

    def state_dict(self) -> dict[str, Any]:
        """Everything that the rest of the loop depends on."""
        return self.learner.state_dict() | {"tasks": self.tasks.state_dict(), "state": self.state.__dict__}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from `state`."""
        self.learner.restore({name: state[name] for name in ("policy", "optimizers", "beside", "algorithm")})
        self.tasks.load_state_dict(state["tasks"])
        self.state = LoopState(**state["state"])


def reached(checkpoint: Path, weights: int = 0) -> int:
    """Iterations that a loop with this checkpoint has behind it. Args: weights: of its policy, which bound
    the file's size.
    """
    return (
        int(_read(checkpoint, checkpoint_limit(weights))["state"]["iteration"]) if checkpoint.is_file() else 0
    )


def _read(checkpoint: Path, limit: int) -> dict[str, Any]:
    state = read_checkpoint(checkpoint, limit)
    if not isinstance(state, dict) or state.keys() != PARTS:
        found = f"The checkpoint {checkpoint} is not of an RL loop."
        raise TrainingError(
            found,
            f"Expected {', '.join(sorted(PARTS))} in it.",
            f"Delete {checkpoint} to train from the start.",
        )
    return state
