"""What the RL loop trains: the policy's weights under one optimiser, update by update on an algorithm's
lessons.

With demonstrations each step also takes `demonstration_weight` times the cloning loss on some of them, as
InstructGPT mixes its pretraining in (PPO-ptx; Ouyang et al. 2022, arXiv 2203.02155, Eq. 2) and DAPG its
demonstrations (Rajeswaran et al. 2018, arXiv 1709.10087): what few rollouts do not touch, such as copying a
name to the letter, is not unlearnt beside them.

In a launch of several processes (`components/language/training/parallel.py`) every one of them has a learner,
with a copy of the policy; each computes a part of an update's lessons, and since all take the same step their
policies stay alike.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import count
from typing import Any

import torch

from components.config.training_config import RLConfig
from components.errors import TrainingError
from components.language.torch_seeds import torch_seed
from components.language.training import parallel
from components.language.training.checkpoints import check_weights
from components.language.training.examples import Example, collate
from components.language.training.optimizers import Optimizers, make_optimizers
from components.language.training.token_scores import token_logprobs
from components.policy.policy import Policy
from components.policy.rl.algorithm import Algorithm, Lesson, Written
from components.policy.rl.log_probabilities import packed, scored

LOGPROB_GAP_LIMIT = 0.05
"""Largest mean difference in nats between the sampler's and the trainer's log-probabilities that is still the
same policy.
"""
BETAS = (0.9, 0.95)
WARM_UP = 0.05
DEMONSTRATION_LOSS = "demonstration_loss"
"""Figure of an update, where demonstrations are mixed in."""
_numbers = count()


class Learner:
    """The policy in training. Make it with `Learner.everywhere` where helpers are to take part."""

    def __init__(
        self, policy: Policy, algorithm: Algorithm, config: RLConfig, demonstrations: Sequence[Example] = ()
    ) -> None:
        self.policy, self.algorithm, self.config = policy, algorithm, config
        self.demonstrations = demonstrations if config.demonstration_weight else ()
        self.name = f"learner {next(_numbers)}"
        self.optimizers = self._optimizers()
        # The algorithm's own weights, PPO's value head, have a rate of their own.
        own = algorithm.parameters()
        self.beside = Optimizers([torch.optim.AdamW(own, betas=BETAS, weight_decay=0.0)] if own else [])
        self._first = (
            {name: weight.detach().clone() for name, weight in self.trained().items()}
            if algorithm.anew
            else {}
        )

    def _optimizers(self) -> Optimizers:
        return make_optimizers(
            self.policy.model, self.config.optimizer, self.config.learning_rate, betas=BETAS, weight_decay=0.0
        )

    @classmethod
    def everywhere(
        cls, policy: Policy, algorithm: Algorithm, config: RLConfig, demonstrations: Sequence[Example] = ()
    ) -> Learner:
        """A learner here, and one of the same in every helper."""
        learner = cls(policy, algorithm, config, demonstrations)
        parallel.run_on_all_ranks(
            _make, learner.name, policy, algorithm, config, demonstrations, own=(learner,)
        )
        return learner

    def trained(self) -> dict[str, torch.nn.Parameter]:
        """The weights of the policy that are trained, by name."""
        return {name: weight for name, weight in self.policy.model.named_parameters() if weight.requires_grad}

    def learn(self, lessons: list[Lesson], seed: int, rate: float, *, on_policy: bool) -> dict[str, float]:
        """Optimiser steps over the lessons at the learning rate `rate`; their figures.

        `updates` steps a pass; where an algorithm trains anew, as many as `step_tokens` make, at most at that
        rate.

        Args: on_policy: what played is what is trained, so sampler and trainer must say the same before the
        first step.

        Raises:
            TrainingError: a loss or a gradient that is not finite, or sampler and trainer differ.
        """
        return parallel.run_on_all_ranks(_learn, self.name, lessons, seed, rate, on_policy, own=(self,))

    def restore(self, state: dict[str, Any]) -> None:
        """Every learner goes on from `state`."""
        parallel.run_on_all_ranks(_restore, self.name, state, own=(self,))

    def state_dict(self) -> dict[str, Any]:
        """Weights, optimiser, and what the algorithm carries on."""
        weights = {name: weight.detach() for name, weight in self.trained().items()}
        states = {"optimizers": self.optimizers.state_dict(), "beside": self.beside.state_dict()}
        return {"policy": weights, **states, "algorithm": self.algorithm.state_dict()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from `state`. Raises TrainingError, and changes nothing, if it is not of this model and
        optimiser.
        """
        check_weights(state["policy"], self.trained())
        self.optimizers.check(state["optimizers"])
        self.beside.check(state["beside"])
        with torch.no_grad():
            for name, weight in self.trained().items():
                weight.copy_(state["policy"][name])
        self.optimizers.load_state_dict(state["optimizers"])
        self.beside.load_state_dict(state["beside"])
        self.algorithm.load_state_dict(state["algorithm"])

    def update(self, lessons: list[Lesson], seed: int, rate: float, on_policy: bool) -> dict[str, float]:
        """This process's part of `learn`: the mean figures of the steps, but the gap before the first."""
        steps: list[dict[str, float]] = []
        generator = torch.Generator().manual_seed(torch_seed(seed))
        if self.algorithm.anew:
            self._begin_anew()
        passes = self.config.rft.epochs if self.algorithm.anew else self.config.epochs
        batches = [batch for _ in range(passes) for batch in self._batches(lessons, generator)]
        for place, batch in enumerate(batches):
            share = annealed((place + 1) / (len(batches) + 1)) if self.algorithm.anew else 1.0
            found = self._step(batch, self._shown(generator), rate * share)
            if not steps and on_policy:
                _check_gap(found["logprob_gap"])
            steps.append(found)
        gap = steps[0]["logprob_gap"] if on_policy else math.nan
        return {name: sum(step[name] for step in steps) / len(steps) for name in steps[0]} | {
            "logprob_gap": gap
        }

    def _begin_anew(self) -> None:
        """The policy that training began with, and an optimiser that has seen nothing."""
        with torch.no_grad():
            for name, weight in self.trained().items():
                weight.copy_(self._first[name])
        self.optimizers = self._optimizers()

    def _batches(self, lessons: Sequence[Lesson], generator: torch.Generator) -> list[list[Lesson]]:
        """One pass in a random order: the lessons of each step."""
        order = [lessons[i] for i in torch.randperm(len(lessons), generator=generator).tolist()]
        if not self.algorithm.anew:
            size = math.ceil(len(order) / self.config.updates)
            return [order[start : start + size] for start in range(0, len(order), size)]
        batches: list[list[Lesson]] = [[]]
        for lesson in order:
            if sum(other.length for other in batches[-1]) >= self.config.rft.step_tokens:
                batches.append([])
            batches[-1].append(lesson)
        return batches

    def _shown(self, generator: torch.Generator) -> list[Example]:
        """Some demonstrations, drawn anew for each step."""
        shown: list[Example] = []
        while (
            self.demonstrations and sum(len(example) for example in shown) < self.config.demonstration_tokens
        ):
            shown.append(
                self.demonstrations[int(torch.randint(len(self.demonstrations), (), generator=generator))]
            )
        return shown

    def _step(self, lessons: list[Lesson], shown: list[Example], rate: float) -> dict[str, float]:
        """One optimiser step and its figures, each summed up from what the forward passes add to its mean."""
        shares, count = self.algorithm.shares(lessons), sum(lesson.written for lesson in lessons)
        sums = dict.fromkeys(("loss", "logprob_gap", "policy_entropy", *self.algorithm.figures), 0.0)
        sums |= {DEMONSTRATION_LOSS: 0.0} if shown else {}
        with self.policy.compute.training(self.policy.model):
            for rows in parallel.share(
                packed([lesson.length * len(lesson.rollouts) for lesson in lessons], self.config.batch_tokens)
            ):
                found = self._forward([lessons[i] for i in rows], [shares[i] for i in rows], count)
                for name, value in found.items():
                    sums[name] += value
            if shown:
                sums[DEMONSTRATION_LOSS] += self._clone(
                    parallel.share(shown), sum(_wanted(example) for example in shown)
                )
            sums = dict(zip(sums, parallel.sums(list(sums.values())), strict=True))
            _check_finite("policy loss", sums["loss"])
            _check_finite("loss on the demonstrations", sums.get(DEMONSTRATION_LOSS, 0.0))
            weights = [*self.trained().values(), *self.algorithm.parameters()]
            parallel.sum_gradients(weights)
            norm = torch.nn.utils.clip_grad_norm_(weights, 1.0)
            _check_finite("gradient's norm", float(norm))
            self.optimizers.step(rate)
            self.beside.step(rate * self.config.ppo.value_rate / self.config.learning_rate)
        return sums | {"gradient_norm": float(norm)}

    def _clone(self, shown: Sequence[Example], count: int) -> float:
        """The gradient of the cloning loss of these demonstrations, weighted; their part of its mean over
        `count` tokens.
        """
        if not shown:
            return 0.0
        batch = collate(shown, self.policy.vocabulary.marker_id("<pad>")).to(self.policy.model.device)
        with self.policy.compute.forward():
            loss = -token_logprobs(self.policy.model, batch).logprobs.sum() / count
        (self.config.demonstration_weight * loss).backward()
        return loss.item()

    def _forward(self, lessons: list[Lesson], shares: list[float], count: int) -> dict[str, float]:
        """The gradient of some lessons of a step of `count` written tokens, added to the others'; their part
        of its figures.
        """
        device, rollouts = (
            self.policy.model.device,
            [rollout for lesson in lessons for rollout in lesson.rollouts],
        )
        scores = scored(
            self.policy,
            rollouts,
            temperature=self.config.temperature,
            with_entropy=True,
            with_hidden=self.algorithm.wants_hidden,
        )
        old = torch.tensor([value for rollout in rollouts for value in rollout.logprobs], device=device)
        share = torch.tensor(
            [value for lesson, value in zip(lessons, shares, strict=True) for _ in range(lesson.written)],
            device=device,
        )
        values = {
            name: [value for lesson in lessons for value in lesson.targets[name]]
            for name in lessons[0].targets
        }
        targets = {name: torch.tensor(row, device=device) for name, row in values.items()}
        written = Written(
            scores.logprobs,
            old,
            scores.hidden,
            targets,
            share,
            [rollout.written for rollout in rollouts],
            count,
        )
        loss, figures = self.algorithm.loss(written)
        loss.backward()
        assert scores.entropies is not None
        gap, entropy = (
            (scores.logprobs.detach() - old).abs().sum().item(),
            scores.entropies.detach().sum().item(),
        )
        return figures | {"loss": loss.item(), "logprob_gap": gap / count, "policy_entropy": entropy / count}


def annealed(progress: float) -> float:
    """The share of the learning rate at `progress` (0 to 1) of a training: rising over the first `WARM_UP`,
    then a cosine to zero.
    """
    if progress < WARM_UP:
        return progress / WARM_UP
    return 0.5 * (1 + math.cos(math.pi * (progress - WARM_UP) / (1 - WARM_UP)))


def _make(
    name: str,
    policy: Policy,
    algorithm: Algorithm,
    config: RLConfig,
    demonstrations: Sequence[Example],
    own: Learner | None = None,
) -> None:
    if own is None:
        parallel.set_rank_state(name, Learner(policy, algorithm, config, demonstrations))


def _learn(
    name: str, lessons: list[Lesson], seed: int, rate: float, on_policy: bool, own: Learner | None = None
) -> dict[str, float]:
    learner: Learner = own or parallel.get_rank_state(name)
    return learner.update(lessons, seed, rate, on_policy)


def _restore(name: str, state: dict[str, Any], own: Learner | None = None) -> None:
    learner: Learner = own or parallel.get_rank_state(name)
    learner.load_state_dict(state)


def _wanted(example: Example) -> int:
    return sum(sum(segment.loss) for segment in example.segments)


def _check_gap(gap: float) -> None:
    """Before the first step of an iteration trainer and sampler are the same policy and must say the same."""
    if gap > LOGPROB_GAP_LIMIT:
        raise TrainingError(
            f"Sampler and trainer differ by {gap:.3g} nats a token on the same policy.",
            f"Expected at most {LOGPROB_GAP_LIMIT}.",
            "The engine does not compute what the model computes: report the backbone's architecture.",
        )


def _check_finite(what: str, value: float) -> None:
    """Before the step is taken, so that the weights and the checkpoint stay those of the last good one."""
    if not math.isfinite(value):
        raise TrainingError(
            f"The {what} is {value}.", "Expected a finite number.", "Lower the stage's learning_rate."
        )
