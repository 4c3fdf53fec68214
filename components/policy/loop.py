"""The RL loop: sample tasks, play groups of rollouts, update the policy; the same in a dream and in the real world.

An algorithm is advantages and a loss (`grpo.py`); everything else is here. The state after each iteration (policy,
optimiser, task source, figures) is saved atomically, random streams are numbered by iteration, and a loop that was stopped
goes on where it was with the same numbers.
"""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import torch

from components.config import GRPOConfig
from components.errors import TrainingError
from components.language.backbone import add_lora, merge_lora
from components.language.examples import Example, collate
from components.language.training import token_logprobs
from components.policy.grpo import clipped_loss, group_advantages, mean_shares, step_advantages, token_advantages
from components.policy.players import Player
from components.policy.policy import Policy
from components.policy.rollout import Rollout, Stamp, evenly, grouped
from components.records import Task

LOGPROB_GAP_LIMIT = 0.05
"""Largest mean difference in nats between the sampler's and the trainer's log-probabilities that is still the same policy."""
BARREN_ITERATIONS = 8
"""Iterations on end without anything to learn from after which the loop gives up."""
UPDATE_FIGURES = ("loss", "logprob_gap", "policy_entropy", "clip_share", "gradient_norm")
"""Figures of an update; NaN in an iteration that had none, so that every curve has a value an iteration."""


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
    """The place reached and the figures of each iteration so far, name -> one value an iteration."""

    iteration: int = 0
    interactions: int = 0
    barren: int = 0
    series: dict[str, list[float]] = field(default_factory=dict)


class Loop:
    """One RL stage. Build it, then `run`."""

    def __init__(
        self,
        policy: Policy,
        player: Player,
        tasks: TaskSource,
        config: GRPOConfig,
        *,
        max_steps: int,
        seed: int,
        stamp: Stamp = Stamp(),
        checkpoint: Path | None = None,
        updating: Callable[[], AbstractContextManager[Any]] = nullcontext,
    ) -> None:
        """Args: updating: entered around each update (training may gain from more threads than decoding)."""
        self.policy, self.player, self.tasks, self.config = policy, player, tasks, config
        self.updating = updating
        self.max_steps, self.seed, self.stamp, self.checkpoint = max_steps, seed, stamp, checkpoint
        policy.max_new_tokens = config.max_new_tokens
        policy.model = add_lora(policy.model, config.lora, seed=seed)
        self.optimiser = torch.optim.AdamW(self._trained().values(), lr=config.learning_rate, betas=(0.9, 0.95), weight_decay=0.0)
        self.state = LoopState()
        aside = self._trained() if config.interpolation < 1 else {}
        # In the main memory: it is needed once, at the end.
        self._start = {name: weight.detach().to("cpu", copy=True) for name, weight in aside.items()}

    def run(
        self,
        *,
        budget: int | None = None,
        on_rollouts: Callable[[int, list[Rollout]], None] | None = None,
        on_iteration: Callable[[int, dict[str, float]], None] | None = None,
    ) -> LoopState:
        """All iterations that remain, or as many as `budget` interactions surely allow.

        Raises:
            TrainingError: a loss that is not finite, or nothing to learn from for many iterations on end.
        """
        self._resume()
        rows = self.config.tasks * self.config.group
        while self.state.iteration < self.config.iterations:
            if budget is not None and self.state.interactions + rows * self.max_steps > budget:
                break
            figures = self._iterate(on_rollouts)
            for name, value in figures.items():
                self.state.series.setdefault(name, []).append(value)
            self.state.iteration += 1
            self._save()
            if on_iteration:
                on_iteration(self.state.iteration, figures)
        return self.state

    def interpolate(self) -> None:
        """Call once, when all is run: the policy becomes `interpolation` of the way from its first to its last weights, without adapters.

        WiSE-FT (Wortsman et al. 2022, arXiv 2109.01903), which averages a model before and after fine-tuning: what few tasks taught
        stays, what was unlearnt beside it comes back. Adapters change the weights by B A, and B begins at zero: a share of the way is
        that share of B, with A as it is in the end.
        """
        last, share = self._trained(), self.config.interpolation
        with torch.no_grad():
            for name, first in self._start.items():
                if "lora_A" not in name:
                    last[name].copy_(torch.lerp(first.to(last[name].device), last[name], share))
        self.policy.model = merge_lora(self.policy.model)

    def _trained(self) -> dict[str, torch.nn.Parameter]:
        """The weights that are trained, by name."""
        return {name: weight for name, weight in self.policy.model.named_parameters() if weight.requires_grad}

    def _iterate(self, on_rollouts: Callable[[int, list[Rollout]], None] | None) -> dict[str, float]:
        number = self.seed * 10_007 + self.state.iteration
        tasks = self.tasks.sample(self.config.tasks, number)
        before, began = self.player.interactions, time.monotonic()
        rollouts = self.player.play(
            self.policy, grouped(tasks, self.config.group), max_steps=self.max_steps, temperature=self.config.temperature,
            seed=number, stamp=self.stamp,
        )  # fmt: skip
        seconds = time.monotonic() - began
        self.state.interactions += self.player.interactions - before
        if on_rollouts:
            on_rollouts(self.state.iteration, rollouts)
        size = self.config.group
        # Where the world broke or the dream had no answer the policy is not to blame: counted, and nothing is learnt from it.
        whole = [rollouts[place : place + size] for place in range(0, len(rollouts), size)]
        groups = [[r for r in group if not (r.broken or r.unparsable)] for group in whole]
        kept, advantages = self._advantages(groups)
        figures = self._describe(rollouts, groups, before)
        figures["steps_per_second"] = figures["interactions"] / seconds
        returns = {group[0].trajectory.task.id: (group[0].trajectory.task, [r.reward for r in group]) for group in groups if group}
        figures |= self.tasks.report(returns, number)
        self._count_barren(figures["zero_variance_groups"] < 1)
        if not kept:
            return figures | dict.fromkeys(UPDATE_FIGURES, math.nan)
        with self.updating():
            return figures | self._update(kept, advantages, number)

    def _advantages(self, groups: list[list[Rollout]]) -> tuple[list[Rollout], list[list[float]]]:
        """Rollouts that teach something, and the advantage of each token that the policy wrote in them."""
        kept: list[Rollout] = []
        advantages: list[list[float]] = []
        for group in groups:
            for rollout, values in zip(group, self._step_values(group), strict=True):
                tokens = token_advantages(rollout, values)
                if any(tokens):
                    kept.append(rollout)
                    advantages.append(tokens)
        return kept, advantages

    def _step_values(self, group: list[Rollout]) -> list[list[float]]:
        """The advantage of each reply of each rollout: the episode's, GiGPO's of the step, and the penalty of the idle."""
        config = self.config
        whole = group_advantages([r.reward for r in group], normalise=config.normalise) if group else []
        steps = step_advantages(group, discount=config.discount)
        values = [
            [value + config.step_weight * step - config.idle_penalty * idle for step, idle in zip(row, rollout.idle, strict=True)]
            for rollout, value, row in zip(group, whole, steps, strict=True)
        ]
        return [[value if value > 0 else config.negative_weight * value for value in row] for row in values]

    def _describe(self, rollouts: list[Rollout], groups: list[list[Rollout]], before: int) -> dict[str, float]:
        steps = [step for r in rollouts for step in r.trajectory.steps]
        flat = sum(len({r.reward for r in group}) < 2 for group in groups)
        return {
            "success_rate": sum(r.reward for r in rollouts) / len(rollouts),
            "return_mean": sum(r.reward for r in rollouts) / len(rollouts),
            "episode_length": len(steps) / len(rollouts),
            "zero_variance_groups": flat / len(groups),
            "idle_steps": sum(sum(r.idle) for r in rollouts) / max(1, len(steps)),
            "malformed_actions": sum(r.malformed for r in rollouts) / max(1, len(steps)),
            "unparsable_episodes": sum(r.unparsable for r in rollouts) / len(rollouts),
            "broken_episodes": sum(r.broken for r in rollouts) / len(rollouts),
            "generated_task_share": sum(r.trajectory.task.generated for r in rollouts) / len(rollouts),
            "interactions": float(self.player.interactions - before),
        }

    def _count_barren(self, fertile: bool) -> None:
        self.state.barren = 0 if fertile else self.state.barren + 1
        if self.state.barren >= BARREN_ITERATIONS:
            raise TrainingError(
                f"All groups of {BARREN_ITERATIONS} iterations on end had zero reward variance: nothing to learn from.",
                "Expected tasks that the policy sometimes solves and sometimes does not.",
                "Raise the stage's temperature or group, or clone more (cloning.demonstrations).",
            )

    def _update(self, kept: list[Rollout], advantages: list[list[float]], seed: int) -> dict[str, float]:
        """`updates` optimiser steps a pass over the kept episodes; the mean of their figures, but the gap before the first."""
        steps: list[dict[str, float]] = []
        for settings in self.optimiser.param_groups:
            settings["lr"] = self._rate()
        generator = torch.Generator().manual_seed(seed)
        for _ in range(self.config.epochs):
            order = torch.randperm(len(kept), generator=generator).tolist()
            share = math.ceil(len(order) / self.config.updates)
            for start in range(0, len(order), share):
                part = order[start : start + share]
                found = self._step([kept[i] for i in part], [advantages[i] for i in part])
                if not steps:
                    self._check_gap(found["logprob_gap"])
                steps.append(found)
        return {name: sum(step[name] for step in steps) / len(steps) for name in UPDATE_FIGURES} | {"logprob_gap": steps[0]["logprob_gap"]}

    def _rate(self) -> float:
        """The learning rate of this iteration: constant, or falling in a straight line towards zero over all iterations."""
        if self.config.schedule == "constant":
            return self.config.learning_rate
        return self.config.learning_rate * (1 - self.state.iteration / self.config.iterations)

    def _step(self, rollouts: list[Rollout], advantages: list[list[float]]) -> dict[str, float]:
        device = self.policy.model.device
        count = sum(len(r.logprobs) for r in rollouts)
        shares = mean_shares([len(r.logprobs) for r in rollouts], self.config.loss_mean)
        total = gap = entropy = clipped = 0.0
        with self.policy.compute.training(self.policy.model):
            for rows in _forward_batches([r.example for r in rollouts], self.config.batch_tokens):
                batch = collate([rollouts[i].example for i in rows], self.policy.vocabulary.marker_id("<pad>")).to(device)
                with self.policy.compute.forward():
                    scores = token_logprobs(self.policy.model, batch, temperature=self.config.temperature, with_entropy=True)
                old = torch.tensor([value for i in rows for value in rollouts[i].logprobs], device=device)
                weight = torch.tensor([value * shares[i] for i in rows for value in advantages[i]], device=device)
                loss, cut = clipped_loss(scores.logprobs, old, weight, self.config.clip)
                loss.backward()
                total, clipped = total + loss.item(), clipped + cut.item()
                gap += (scores.logprobs.detach() - old).abs().sum().item()
                entropy += scores.entropies.detach().sum().item() if scores.entropies is not None else 0.0
            self._check(total)
            norm = torch.nn.utils.clip_grad_norm_(self._trained().values(), 1.0)
            self.optimiser.step()
            self.optimiser.zero_grad(set_to_none=True)
        return {"loss": total, "logprob_gap": gap / count, "policy_entropy": entropy / count, "clip_share": clipped / count,
                "gradient_norm": float(norm)}  # fmt: skip

    def _check_gap(self, gap: float) -> None:
        """Before the first step of an iteration trainer and sampler are the same policy and must say the same."""
        if gap > LOGPROB_GAP_LIMIT:
            raise TrainingError(
                f"Sampler and trainer differ by {gap:.3g} nats a token on the same policy.",
                f"Expected at most {LOGPROB_GAP_LIMIT}.",
                "The engine does not compute what the model computes: report the backbone's architecture.",
            )

    def _check(self, loss: float) -> None:
        if not math.isfinite(loss):
            raise TrainingError(
                f"The policy loss is {loss} in iteration {self.state.iteration}.",
                "Expected a finite number.",
                "Lower the stage's learning_rate.",
            )

    def _save(self) -> None:
        if self.checkpoint is None:
            return
        self.checkpoint.parent.mkdir(parents=True, exist_ok=True)
        beside = self.checkpoint.with_name(self.checkpoint.name + ".part")
        with beside.open("wb") as file:
            torch.save(self.state_dict(), file)
            file.flush()
            os.fsync(file.fileno())
        beside.replace(self.checkpoint)

    def _resume(self) -> None:
        if self.checkpoint is not None and self.checkpoint.is_file():
            self.load_state_dict(torch.load(self.checkpoint, weights_only=True))

    def state_dict(self) -> dict[str, Any]:
        """Everything that the rest of the loop depends on."""
        return {
            "policy": {name: weight.detach() for name, weight in self._trained().items()},
            "optimiser": self.optimiser.state_dict(),
            "tasks": self.tasks.state_dict(),
            "state": self.state.__dict__,
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from `state`."""
        with torch.no_grad():
            for name, weight in self._trained().items():
                weight.copy_(state["policy"][name])
        self.optimiser.load_state_dict(state["optimiser"])
        self.tasks.load_state_dict(state["tasks"])
        self.state = LoopState(**state["state"])


def reached(checkpoint: Path) -> int:
    """Iterations that a loop with this checkpoint has behind it."""
    return int(torch.load(checkpoint, weights_only=True)["state"]["iteration"]) if checkpoint.is_file() else 0


def _forward_batches(examples: Sequence[Example], batch_tokens: int) -> list[list[int]]:
    """Indices in groups of similar length whose padded size is at most `batch_tokens`."""
    order = sorted(range(len(examples)), key=lambda i: len(examples[i]))
    groups: list[list[int]] = [[]]
    for index in order:
        if groups[-1] and len(examples[index]) * (len(groups[-1]) + 1) > batch_tokens:
            groups.append([])
        groups[-1].append(index)
    return groups
