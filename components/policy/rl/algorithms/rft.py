"""Rejection-sampling fine-tuning: each iteration trains the initial policy on all kept successes.

    E-step: play; keep the successes.
    M-step: theta = argmax sum over kept episodes of log pi_theta(written | read), started at theta_0.

    dreamgym retrain rl.algorithm=rft

This is expert iteration without a search, as in ReST-EM (Singh et al. 2023, arXiv 2312.06585, Alg. 1). RAFT
(Dong et al. 2023, arXiv 2304.06767) and STaR (Zelikman et al. 2022, arXiv 2203.14465) are similar.

Each M-step is a separate supervised training (`RestartingLearner`). It starts from the initial weights, with
a learning rate that warms up and decays to zero. A bad iteration therefore has no lasting effect.

Deviations:
1. Successes of earlier iterations are kept, because a small policy succeeds in few ways per task. ReST-EM
   drops them.
2. At most `max_successes` different successes per task are kept, the newest, so that easy tasks do not
   dominate.
3. A reply that left the state unchanged is read but has no loss. Otherwise episodes that succeeded in spite
   of such a reply would reinforce it.
4. theta_0 is the policy that RL started from, the clone, not the model that it was cloned from.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from components.config.algorithm_config import RFTConfig
from components.config.rl_config import RLConfig
from components.language.training.examples import Example, Segment
from components.language.training.sharding import is_requested
from components.policy.policy import Policy
from components.policy.rl.algorithms.algorithm import Algorithm, LossInputs
from components.policy.rl.algorithms.grpo import per_token
from components.policy.rl.algorithms.policy_gradient import mean_weights
from components.policy.rl.learner import Learner
from components.policy.rl.training_sample import TrainingSample
from components.policy.rollout import Rollout
from components.records import Task, Trajectory

STEP_TOKENS = 4096
"""Number of tokens per optimiser step, read and written."""
WARM_UP = 0.05
"""Share of the steps in which the learning rate rises."""

Successes = dict[tuple[int, ...], Rollout]
"""The kept successes of one task by their tokens, the newest last."""


class RFT(Algorithm):
    """Rejection-sampling fine-tuning; see the module.

    Attributes:
        kept: successes of each task by task id.
    """

    def __init__(self, options: RFTConfig) -> None:
        self.options = options
        self.kept: dict[str, Successes] = {}

    def training_samples(self, groups: Sequence[list[Rollout]], policy: Policy) -> list[TrainingSample]:
        """Return all kept successes, including those of this iteration."""
        for group in groups:
            for rollout in group:
                if rollout.reward > 0.5:
                    self._add_success(rollout)
        return [
            _training_sample(rollout) for successes in self.kept.values() for rollout in successes.values()
        ]

    def _add_success(self, rollout: Rollout) -> None:
        """Add a success, and drop the oldest ones of its task if there are too many."""
        successes = self.kept.setdefault(rollout.trajectory.task.id, {})
        tokens = tuple(token for segment in rollout.example.segments for token in segment.tokens)
        successes.pop(tokens, None)
        successes[tokens] = rollout
        while len(successes) > self.options.max_successes:
            del successes[next(iter(successes))]

    def token_weights(self, samples: Sequence[TrainingSample]) -> list[float]:
        """Return equal weights for all tokens."""
        return mean_weights([sample.token_count for sample in samples], "token")

    def loss(self, inputs: LossInputs) -> tuple[Tensor, dict[str, Tensor]]:
        """Return the mean of -log pi over the written tokens, without those of idle replies."""
        return -(inputs.logprobs * inputs.targets["weight"] * inputs.token_weights).sum(), {}

    def state_dict(self) -> dict[str, Any]:
        """Return the kept successes by task: segments, the sampler's log-probabilities, idle replies."""
        return {
            task_id: [_to_plain(rollout) for rollout in successes.values()]
            for task_id, successes in self.kept.items()
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue from `state`."""
        self.kept = {}
        for task_id, entries in state.items():
            for entry in entries:
                self._add_success(_from_plain(task_id, entry))


class RestartingLearner(Learner):
    """Starts each iteration from the initial weights: `epochs` over all samples, with an annealed rate."""

    is_on_policy = False

    def __init__(
        self, policy: Policy, algorithm: Algorithm, config: RLConfig, demonstrations: Sequence[Example] = ()
    ) -> None:
        super().__init__(policy, algorithm, config, demonstrations)
        assert isinstance(config.algorithm, RFTConfig)
        self._epochs = config.algorithm.epochs
        self._initial = {name: self._copied(weight) for name, weight in self.trained_weights().items()}

    @staticmethod
    def _copied(weight: torch.Tensor) -> torch.Tensor:
        return weight.detach().to("cpu" if is_requested() else weight.device, copy=True)

    def learning_rate(self, progress: float) -> float:
        """Return the peak of an iteration's schedule, which is constant."""
        return self.config.learning_rate

    def begin_update(self) -> None:
        """Restore the initial weights and create a new optimiser."""
        with torch.no_grad():
            for name, weight in self.trained_weights().items():
                weight.copy_(self._initial[name])
        self.trained.take_weights()
        self.optimizers = self.make_optimizers()

    @property
    def passes(self) -> int:
        """Number of epochs over all samples."""
        return self._epochs

    def split(self, samples: Sequence[TrainingSample]) -> list[list[TrainingSample]]:
        """Return batches of about STEP_TOKENS tokens."""
        batches: list[list[TrainingSample]] = [[]]
        for sample in samples:
            if sum(other.length for other in batches[-1]) >= STEP_TOKENS:
                batches.append([])
            batches[-1].append(sample)
        return batches

    def rate_factor(self, progress: float) -> float:
        """Return the factor at `progress` (0 to 1); see `annealing_factor`."""
        return annealing_factor(progress)


def annealing_factor(progress: float) -> float:
    """Return the factor of the learning rate at `progress` (0 to 1): linear warm-up, then cosine to zero."""
    if progress < WARM_UP:
        return progress / WARM_UP
    return 0.5 * (1 + math.cos(math.pi * (progress - WARM_UP) / (1 - WARM_UP)))


def _training_sample(rollout: Rollout) -> TrainingSample:
    weights = per_token(rollout, [0.0 if idle else 1.0 for idle in rollout.idle])
    return TrainingSample((rollout,), {"weight": weights})


def _to_plain(rollout: Rollout) -> dict[str, Any]:
    segments = [(segment.tokens, segment.loss) for segment in rollout.example.segments]
    return {"segments": segments, "logprobs": rollout.logprobs, "idle": rollout.idle}


def _from_plain(task_id: str, entry: dict[str, Any]) -> Rollout:
    """Return a rollout with everything that training reads, without its steps."""
    example = Example([Segment(list(tokens), list(loss)) for tokens, loss in entry["segments"]])
    task = Task(id=task_id, environment="", split="", instruction="", initial_state="")
    return Rollout(Trajectory(task), example, list(entry["logprobs"]), idle=list(entry["idle"]))
