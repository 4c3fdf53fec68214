"""The learner: takes the optimiser steps of an update on an algorithm's training samples.

With demonstrations, each step also adds `demonstration_weight` times the cloning loss on some of them. The
policy then keeps skills that few rollouts exercise, such as copying a name letter by letter. InstructGPT
mixes in pretraining in this way (PPO-ptx; Ouyang et al. 2022, arXiv 2203.02155, Eq. 2), and DAPG
demonstrations (Rajeswaran et al. 2018, arXiv 1709.10087). Observed states are added in the same way
(`observations.py`).

In a launch of several processes (`components/language/training/parallel.py`) each process has a learner with
a copy of the policy. Each computes a part of an update's gradient and all take the same step, so their
policies stay equal.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from itertools import count
from typing import Any

import torch
from torch import Tensor

from components.config.algorithm_config import OptimiserStepsConfig
from components.config.rl_config import RLConfig
from components.language.freed_memory import return_if_grown
from components.language.torch_seeds import torch_seed
from components.language.training import parallel
from components.language.training.checkpoints import check_weights
from components.language.training.examples import Example, collate
from components.language.training.optimizers import Optimizers, make_optimizers
from components.language.training.token_scores import token_logprobs
from components.policy.policy import Policy
from components.policy.rl.algorithms.algorithm import Algorithm, LossInputs
from components.policy.rl.log_probabilities import pack_by_length, score_tokens
from components.policy.rl.training_checks import check_finite, check_logprob_gap
from components.policy.rl.training_sample import TrainingSample

BETAS = (0.9, 0.95)
DEMONSTRATION_TOKENS = 2048
"""Number of tokens of demonstrations in a step; each step draws its own."""
DEMONSTRATION_LOSS = "demonstration_loss"
"""Name of the figure that updates with demonstrations have."""
OBSERVATION_LOSS = "observation_loss"
"""Name of the figure that updates with observations have."""
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
        self.optimizers = self.make_optimizers()
        own_weights = algorithm.parameters()
        self.own_optimizers = Optimizers(
            [torch.optim.AdamW(own_weights, betas=BETAS, weight_decay=0.0)] if own_weights else []
        )

    def make_optimizers(self) -> Optimizers:
        """Return a new optimiser of the policy's trained weights."""
        rate = self.config.learning_rate
        return make_optimizers(self.policy.model, "adamw", rate, betas=BETAS, weight_decay=0.0)

    @classmethod
    def on_all_ranks(
        cls, policy: Policy, algorithm: Algorithm, config: RLConfig, demonstrations: Sequence[Example] = ()
    ) -> Learner:
        """Return a new learner; every worker of the launch creates an equal one."""
        learner = cls(policy, algorithm, config, demonstrations)
        parallel.run_on_all_ranks(
            _create, cls, learner.name, policy, algorithm, config, demonstrations, own=(learner,)
        )
        return learner

    def trained_weights(self) -> dict[str, torch.nn.Parameter]:
        """Return the weights of the policy that are trained, by name."""
        return {name: weight for name, weight in self.policy.model.named_parameters() if weight.requires_grad}

    def learning_rate(self, iteration: int) -> float:
        """Return the learning rate of an iteration: constant, or linear to zero over all iterations."""
        if self.config.schedule == "constant":
            return self.config.learning_rate
        return self.config.learning_rate * (1 - iteration / self.config.iterations)

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

    def state_dict(self) -> dict[str, Any]:
        """Return weights, optimisers, and the algorithm's state."""
        weights = {name: weight.detach() for name, weight in self.trained_weights().items()}
        return {
            "policy": weights,
            "optimizers": self.optimizers.state_dict(),
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
        token_weights = self.algorithm.token_weights(samples) if samples else []
        total_tokens = sum(sample.token_count for sample in samples)
        names = ["loss", "logprob_gap", "policy_entropy", *self.algorithm.figures]
        names += [DEMONSTRATION_LOSS] if demonstrations else []
        names += [OBSERVATION_LOSS] if self.config.observation_weight else []
        parts: dict[str, list[Tensor]] = {name: [] for name in names}
        lengths = [sample.length * len(sample.rollouts) for sample in samples]
        with self.policy.compute.training(self.policy.model):
            for rows in parallel.share(pack_by_length(lengths, self.config.batch_tokens)):
                figures = self._add_gradient(
                    [samples[i] for i in rows], [token_weights[i] for i in rows], total_tokens
                )
                for name, value in figures.items():
                    parts[name].append(value)
                return_if_grown()
            if own_demonstrations := parallel.share(demonstrations):
                total, weight = sum(map(_count_loss_tokens, demonstrations)), self.config.demonstration_weight
                parts[DEMONSTRATION_LOSS].append(self._add_cross_entropy(own_demonstrations, total, weight))
            total, weight = sum(map(_count_loss_tokens, observed)), self.config.observation_weight
            for rows in parallel.share(pack_by_length(list(map(len, observed)), self.config.batch_tokens)):
                examples = [observed[row] for row in rows]
                parts[OBSERVATION_LOSS].append(self._add_cross_entropy(examples, total, weight))
                return_if_grown()
            # Read once everything has been asked of the device: reading waits for it.
            sums = dict(
                zip(names, parallel.sums([sum(map(float, parts[name])) for name in names]), strict=True)
            )
            check_finite("policy loss", sums["loss"])
            check_finite("loss on the demonstrations", sums.get(DEMONSTRATION_LOSS, 0.0))
            check_finite("loss on the observations", sums.get(OBSERVATION_LOSS, 0.0))
            weights = [*self.trained_weights().values(), *self.algorithm.parameters()]
            parallel.sum_gradients(weights)
            norm = torch.nn.utils.clip_grad_norm_(weights, 1.0)
            check_finite("norm of the gradient", float(norm))
            self.optimizers.step(rate)
            self.own_optimizers.step(self.algorithm.own_learning_rate(rate))
        return sums | {"gradient_norm": float(norm)}

    def _add_cross_entropy(self, examples: Sequence[Example], total_tokens: int, weight: float) -> Tensor:
        """Add the weighted gradient of the cross-entropy; return its part of the mean over `total_tokens`."""
        padding = self.policy.vocabulary.pad_id
        batch = collate(examples, padding).to(self.policy.model.device)
        with self.policy.compute.forward():
            loss = -token_logprobs(self.policy.model, batch).logprobs.sum() / total_tokens
        (weight * loss).backward()
        return loss.detach()

    def _add_gradient(
        self, samples: list[TrainingSample], token_weights: list[float], total_tokens: int
    ) -> dict[str, Tensor]:
        """Add the gradient of some samples of a step of `total_tokens`; return their part of its figures."""
        rollouts = [rollout for sample in samples for rollout in sample.rollouts]
        scores = score_tokens(
            self.policy,
            rollouts,
            temperature=self.config.temperature,
            with_entropy=True,
            with_hidden=self.algorithm.needs_hidden,
        )
        inputs = LossInputs.of_samples(samples, token_weights, scores, total_tokens, self.policy.model.device)
        loss, figures = self.algorithm.loss(inputs)
        loss.backward()
        assert scores.entropies is not None
        gap = (scores.logprobs.detach() - inputs.old).abs().sum()
        entropy = scores.entropies.detach().sum()
        return figures | {
            "loss": loss.detach(),
            "logprob_gap": gap.double() / total_tokens,
            "policy_entropy": entropy.double() / total_tokens,
        }


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
        parallel.set_rank_state(name, learner_type(policy, algorithm, config, demonstrations))


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


def _restore(name: str, state: dict[str, Any], own: Learner | None = None) -> None:
    learner: Learner = own or parallel.get_rank_state(name)
    learner.load_state_dict(state)


def _count_loss_tokens(example: Example) -> int:
    return sum(segment.predicted for segment in example.segments)
