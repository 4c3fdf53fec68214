"""Rejection-sampling fine-tuning: in each iteration the initial policy is trained anew on all kept successes.

    E: play; keep the successes.
    M: theta = argmax sum over kept episodes of log pi_theta(written | read), started at theta_0.

    dreamgym retrain rl.algorithm=rft

That is expert iteration without a search, as ReST-EM has it (Singh et al. 2023, arXiv 2312.06585, Alg. 1);
RAFT (Dong et al. 2023, arXiv 2304.06767) and STaR (Zelikman et al. 2022, arXiv 2203.14465) are the same idea.
Each M-step is a supervised training of its own (`RestartingLearner`): from the initial weights, with a
learning rate that warms up and decays to zero, so that an iteration's damage does not persist.

Deviations:
1. Successes of earlier iterations are kept (ReST-EM drops them): a small policy succeeds in few ways per
   task.
2. At most `max_successes` different successes per task are kept, the newest, so that easy tasks do not
   dominate.
3. A reply that left the state unchanged is read but not learnt: episodes that succeeded in spite of it would
   teach it.
4. theta_0 is the policy that training began with, the clone, not the model that it was cloned from.
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
from components.policy.policy import Policy
from components.policy.rl.algorithm import Algorithm, LossInputs, TrainingSample
from components.policy.rl.grpo import per_token
from components.policy.rl.learner import Learner
from components.policy.rl.policy_gradient import mean_weights
from components.policy.rollout import Rollout
from components.records import Task, Trajectory

STEP_TOKENS = 4096
"""Tokens per optimiser step, read and written."""
WARM_UP = 0.05
"""Share of the steps in which the learning rate rises."""

Successes = dict[tuple[int, ...], Rollout]
"""The kept successes of one task by their tokens, the newest last."""


class RFT(Algorithm):
    """See the module. `kept` holds the successes of each task by its id."""

    def __init__(self, options: RFTConfig) -> None:
        self.options = options
        self.kept: dict[str, Successes] = {}

    def training_samples(self, groups: Sequence[list[Rollout]], policy: Policy) -> list[TrainingSample]:
        """All kept successes, those of this iteration included."""
        for rollout in (rollout for group in groups for rollout in group if rollout.reward > 0.5):
            self._keep(rollout)
        return [_sample(rollout) for kept in self.kept.values() for rollout in kept.values()]

    def _keep(self, rollout: Rollout) -> None:
        """Add a success; the oldest ones of its task are dropped if there are too many."""
        kept = self.kept.setdefault(rollout.trajectory.task.id, {})
        tokens = tuple(token for segment in rollout.example.segments for token in segment.tokens)
        kept.pop(tokens, None)
        kept[tokens] = rollout
        while len(kept) > self.options.max_successes:
            del kept[next(iter(kept))]

    def token_weights(self, samples: Sequence[TrainingSample]) -> list[float]:
        """All tokens count alike."""
        return mean_weights([sample.token_count for sample in samples], "token")

    def loss(self, inputs: LossInputs) -> tuple[Tensor, dict[str, float]]:
        """-log pi of the written tokens, without those of idle replies."""
        return -(inputs.logprobs * inputs.targets["weight"] * inputs.token_weights).sum(), {}

    def state_dict(self) -> dict[str, Any]:
        """The kept successes by task: segments, the sampler's log-probabilities, idle replies."""
        return {name: [_to_plain(rollout) for rollout in kept.values()] for name, kept in self.kept.items()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue from `state`."""
        self.kept = {}
        for task_id, entries in state.items():
            for entry in entries:
                self._keep(_from_plain(task_id, entry))


class RestartingLearner(Learner):
    """Trains the initial weights anew in each iteration: `epochs` over all samples, with an annealed rate."""

    is_on_policy = False

    def __init__(
        self, policy: Policy, algorithm: Algorithm, config: RLConfig, demonstrations: Sequence[Example] = ()
    ) -> None:
        super().__init__(policy, algorithm, config, demonstrations)
        assert isinstance(config.algorithm, RFTConfig)
        self._epochs = config.algorithm.epochs
        self._initial = {name: weight.detach().clone() for name, weight in self.trained().items()}

    def learning_rate(self, iteration: int) -> float:
        """The peak of each iteration's schedule."""
        return self.config.learning_rate

    def begin_update(self) -> None:
        """Go back to the initial weights, with a new optimiser."""
        with torch.no_grad():
            for name, weight in self.trained().items():
                weight.copy_(self._initial[name])
        self.optimizers = self.make_optimizers()

    @property
    def passes(self) -> int:
        """Epochs over all samples."""
        return self._epochs

    def split(self, samples: Sequence[TrainingSample]) -> list[list[TrainingSample]]:
        """Batches of about STEP_TOKENS tokens."""
        batches: list[list[TrainingSample]] = [[]]
        for sample in samples:
            if sum(other.length for other in batches[-1]) >= STEP_TOKENS:
                batches.append([])
            batches[-1].append(sample)
        return batches

    def rate_factor(self, progress: float) -> float:
        """Linear warm-up, then a cosine to zero. Args: progress: 0 to 1."""
        return annealing_factor(progress)


def annealing_factor(progress: float) -> float:
    """Factor of the learning rate at `progress` (0 to 1): linear warm-up, then a cosine to zero."""
    if progress < WARM_UP:
        return progress / WARM_UP
    return 0.5 * (1 + math.cos(math.pi * (progress - WARM_UP) / (1 - WARM_UP)))


def _sample(rollout: Rollout) -> TrainingSample:
    weights = per_token(rollout, [0.0 if idle else 1.0 for idle in rollout.idle])
    return TrainingSample((rollout,), {"weight": weights})


def _to_plain(rollout: Rollout) -> dict[str, Any]:
    segments = [(segment.tokens, segment.loss) for segment in rollout.example.segments]
    return {"segments": segments, "logprobs": rollout.logprobs, "idle": rollout.idle}


def _from_plain(task_id: str, entry: dict[str, Any]) -> Rollout:
    """A rollout with everything that training reads; its steps are not kept."""
    example = Example([Segment(list(tokens), list(loss)) for tokens, loss in entry["segments"]])
    task = Task(id=task_id, environment="", split="", instruction="", initial_state="")
    return Rollout(Trajectory(task), example, list(entry["logprobs"]), idle=list(entry["idle"]))
