"""The learner: takes the optimiser steps of an update on an algorithm's training samples.

With demonstrations, each step also adds `demonstration_weight` times the cloning loss on some of them. The
policy then keeps skills that few rollouts exercise, such as copying a name letter by letter. InstructGPT
mixes in pretraining in this way (PPO-ptx; Ouyang et al. 2022, arXiv 2203.02155, Eq. 2), and DAPG
demonstrations (Rajeswaran et al. 2018, arXiv 1709.10087). Observed states are added in the same way
(`observations.py`).

In a launch of several processes (`components/language/training/parallel.py`) each process has a learner. Each
computes a part of an update's gradient and all take the same step: with a copy of the policy each, or with a
part of its weights each (`trained_model.py`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from itertools import count
from typing import Any

import torch

from components.config.algorithm_config import OptimiserStepsConfig
from components.config.rl_config import RLConfig
from components.language.torch_seeds import torch_seed
from components.language.training import parallel
from components.language.training.checkpoints import check_weights
from components.language.training.examples import Example
from components.language.training.optimizers import Optimizers, make_optimizers
from components.language.training.sharding import whole_on_first_rank
from components.language.training.token_scores import TokenScores
from components.policy.policy import Policy
from components.policy.rl.algorithms.algorithm import Algorithm
from components.policy.rl.step_gradient import StepGradient
from components.policy.rl.trained_model import TrainedModel
from components.policy.rl.training_checks import check_finite, check_logprob_gap
from components.policy.rl.training_sample import TrainingSample
from components.policy.rollout import Rollout

BETAS = (0.9, 0.95)
DEMONSTRATION_TOKENS = 2048
"""Number of tokens of demonstrations in a step; each step draws its own."""
_learner_numbers = count()


class Learner:
    """Trains a policy. In a launch of several processes, create it with `Learner.on_all_ranks`."""

    is_on_policy = True
    """Whether an update starts from the weights that played the rollouts."""

    def __init__(
        self, policy: Policy, algorithm: Algorithm, config: RLConfig, demonstrations: Sequence[Example] = ()
    ) -> None:
        self.policy = policy
        self.algorithm = algorithm
        self.config = config
        self.demonstrations = demonstrations if config.demonstration_weight else ()
        self.name = f"learner {next(_learner_numbers)}"
        self.after_step: Callable[[], object] = bool  # called after each optimiser step of this process
        self.trained = TrainedModel(policy, plays_beside=algorithm.needs_whole_model)
        self._gradient = StepGradient(policy, algorithm, config, self.trained)
        self.optimizers = self.make_optimizers()
        own_weights = algorithm.parameters()
        self.own_optimizers = Optimizers(
            [torch.optim.AdamW(own_weights, betas=BETAS, weight_decay=0.0)] if own_weights else []
        )

    def make_optimizers(self) -> Optimizers:
        """Return a new optimiser of the policy's trained weights."""
        rate = self.config.learning_rate
        return make_optimizers(self.trained.module, "adamw", rate, betas=BETAS, weight_decay=0.0)

    @classmethod
    def on_all_ranks(
        cls, policy: Policy, algorithm: Algorithm, config: RLConfig, demonstrations: Sequence[Example] = ()
    ) -> Learner:
        """Return a new learner; every worker of the launch creates an equal one."""
        learner = cls(policy, algorithm, config, demonstrations)
        parallel.run_on_all_ranks(
            _create, cls, learner.name, policy, algorithm, config, demonstrations, own=(learner,)
        )
        if learner.trained.is_divided:
            policy.score_elsewhere = learner.score
        return learner

    def divide(self) -> None:
        """Divide the trained weights among the ranks, if the launch asks for it; every rank calls this."""
        self.trained.divide()
        if self.trained.is_divided:
            self.optimizers = self.make_optimizers()

    def trained_weights(self) -> dict[str, torch.nn.Parameter]:
        """Return the weights of the policy that are trained, whole, by name."""
        return {name: weight for name, weight in self.policy.model.named_parameters() if weight.requires_grad}

    def learning_rate(self, progress: float) -> float:
        """Return the learning rate of an iteration: constant, or linear to zero over the training.

        Args:
            progress: share of the training that was over before it, in [0, 1].
        """
        if self.config.schedule == "constant":
            return self.config.learning_rate
        return self.config.learning_rate * (1 - progress)

    def learn(
        self,
        samples: list[TrainingSample],
        seed: int,
        rate: float,
        *,
        on_policy: bool,
        observed: Sequence[Example] = (),
    ) -> dict[str, float]:
        """Take the optimiser steps of one iteration and return its figures.

        Args:
            samples: training samples of the iteration.
            seed: of the order of the samples and the draws of demonstrations.
            rate: learning rate; a schedule within the iteration multiplies it.
            on_policy: whether the trained policy played the rollouts. Sampler and trainer must then agree
                before the first step.
            observed: rollouts with loss on the states that they observed; each is trained on once.

        Raises:
            TrainingError: a loss or a gradient is not finite, or sampler and trainer disagree.
        """
        return parallel.run_on_all_ranks(
            _update, self.name, samples, seed, rate, on_policy, list(observed), own=(self,)
        )

    def restore(self, state: dict[str, Any]) -> None:
        """Make every learner of the launch continue from `state`."""
        parallel.run_on_all_ranks(_restore, self.name, state, own=(self,))

    def end(self) -> None:
        """Forget the learners of the other processes, and this one's divided copy, once training is over."""
        self.policy.score_elsewhere = None
        parallel.run_on_all_ranks(parallel.drop_rank_state, self.name)

    def score(
        self, rollouts: Sequence[Rollout], *, temperature: float, batch_tokens: int, with_hidden: bool = False
    ) -> list[tuple[int, TokenScores]]:
        """Return what `score_without_gradients` does, computed by all processes with divided weights."""
        arguments = list(rollouts), temperature, batch_tokens, with_hidden
        return parallel.run_on_all_ranks(_score, self.name, *arguments, own=(self,))

    def state_dict(self) -> dict[str, Any]:
        """Return weights, optimisers, and the algorithm's state; all whole."""
        weights = {name: weight.detach() for name, weight in self.trained_weights().items()}
        optimizers = self.optimizers.state_dict()
        if self.trained.is_divided:
            optimizers = parallel.run_on_all_ranks(_whole_optimizers, self.name, own=(self,))
        return {
            "policy": weights,
            "optimizers": optimizers,
            "own_optimizers": self.own_optimizers.state_dict(),
            "algorithm": self.algorithm.state_dict(),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue from `state`.

        Raises:
            TrainingError: the state does not fit the model or the optimisers. Nothing is changed then.
        """
        check_weights(state["policy"], self.trained_weights())
        self.optimizers.check(state["optimizers"])
        self.own_optimizers.check(state["own_optimizers"])
        with torch.no_grad():
            for name, weight in self.trained_weights().items():
                weight.copy_(state["policy"][name])
        self.trained.take_weights()
        self.optimizers.load_state_dict(state["optimizers"])
        self.own_optimizers.load_state_dict(state["own_optimizers"])
        self.algorithm.load_state_dict(state["algorithm"])

    def begin_update(self) -> None:
        """Prepare for the steps of an iteration."""

    @property
    def passes(self) -> int:
        """Number of passes over the samples of an iteration."""
        return self._options.num_iterations

    @property
    def _options(self) -> OptimiserStepsConfig:
        assert isinstance(self.config.algorithm, OptimiserStepsConfig)
        return self.config.algorithm

    def split(self, samples: Sequence[TrainingSample]) -> list[list[TrainingSample]]:
        """Return the samples of each optimiser step of a pass."""
        if not samples:  # only observations are trained on
            return [[]]
        size = math.ceil(len(samples) / self._options.optimizer_steps)
        return [list(samples[start : start + size]) for start in range(0, len(samples), size)]

    def rate_factor(self, progress: float) -> float:
        """Return the factor of the learning rate at `progress` (0 to 1) of an iteration."""
        return 1.0

    def update(
        self,
        samples: list[TrainingSample],
        seed: int,
        rate: float,
        on_policy: bool,
        observed: Sequence[Example] = (),
    ) -> dict[str, float]:
        """Do this process's part of `learn` and return the means of the steps' figures.

        `logprob_gap` is the gap before the first step, NaN if not on-policy.
        """
        generator = torch.Generator().manual_seed(torch_seed(seed))
        self.begin_update()
        with self.trained.update():
            return self._steps(samples, generator, rate, on_policy, observed)

    def _steps(
        self,
        samples: list[TrainingSample],
        generator: torch.Generator,
        rate: float,
        on_policy: bool,
        observed: Sequence[Example],
    ) -> dict[str, float]:
        batches = [batch for _ in range(self.passes) for batch in self.split(_shuffled(samples, generator))]
        steps: list[dict[str, float]] = []
        for number, batch in enumerate(batches):
            factor = self.rate_factor((number + 1) / (len(batches) + 1))
            demonstrations = self._draw_demonstrations(generator)
            figures = self._step(batch, demonstrations, observed[number :: len(batches)], rate * factor)
            if not steps and on_policy:
                check_logprob_gap(figures["logprob_gap"])
            steps.append(figures)
            self.after_step()
        means = {name: sum(step[name] for step in steps) / len(steps) for name in steps[0]}
        return means | {"logprob_gap": steps[0]["logprob_gap"] if on_policy else math.nan}

    def _draw_demonstrations(self, generator: torch.Generator) -> list[Example]:
        examples: list[Example] = []
        while self.demonstrations and sum(len(example) for example in examples) < DEMONSTRATION_TOKENS:
            place = int(torch.randint(len(self.demonstrations), (), generator=generator))
            examples.append(self.demonstrations[place])
        return examples

    def _step(
        self,
        samples: list[TrainingSample],
        demonstrations: Sequence[Example],
        observed: Sequence[Example],
        rate: float,
    ) -> dict[str, float]:
        """Take one optimiser step and return its figures, which are sums over the forward passes."""
        with self.policy.compute.training(self.trained.module):
            figures = self._gradient.add(samples, demonstrations, observed)
            norm = self.trained.finish_gradients(self.algorithm.parameters())
            check_finite("norm of the gradient", norm)
            self.optimizers.step(rate)
            self.own_optimizers.step(self.algorithm.own_learning_rate(rate))
        return figures | {"gradient_norm": norm}


def _shuffled(samples: Sequence[TrainingSample], generator: torch.Generator) -> list[TrainingSample]:
    return [samples[i] for i in torch.randperm(len(samples), generator=generator).tolist()]


def _create(
    learner_type: type[Learner],
    name: str,
    policy: Policy,
    algorithm: Algorithm,
    config: RLConfig,
    demonstrations: Sequence[Example],
    own: Learner | None = None,
) -> None:
    if own is None:
        own = learner_type(policy, algorithm, config, demonstrations)
        parallel.set_rank_state(name, own)
    own.divide()


def _update(
    name: str,
    samples: list[TrainingSample],
    seed: int,
    rate: float,
    on_policy: bool,
    observed: list[Example],
    own: Learner | None = None,
) -> dict[str, float]:
    learner: Learner = own or parallel.get_rank_state(name)
    return learner.update(samples, seed, rate, on_policy, observed)


def _score(
    name: str,
    rollouts: list[Rollout],
    temperature: float,
    batch_tokens: int,
    with_hidden: bool,
    own: Learner | None = None,
) -> list[tuple[int, TokenScores]]:
    learner: Learner = own or parallel.get_rank_state(name)
    return learner.trained.score_rollouts(rollouts, temperature, batch_tokens, with_hidden)


def _whole_optimizers(name: str, own: Learner | None = None) -> list[dict[str, Any]]:
    learner: Learner = own or parallel.get_rank_state(name)
    states: list[dict[str, Any]] = whole_on_first_rank(learner.optimizers.state_dict())
    return states


def _restore(name: str, state: dict[str, Any], own: Learner | None = None) -> None:
    learner: Learner = own or parallel.get_rank_state(name)
    learner.load_state_dict(state)
