"""The gradient of one optimiser step: of training samples, demonstrations and observed states together."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor

from components.config.rl_config import RLConfig
from components.language.freed_memory import return_if_grown
from components.language.training import parallel
from components.language.training.examples import Example, collate
from components.policy.policy import Policy
from components.policy.rl.algorithms.algorithm import Algorithm, LossInputs
from components.policy.rl.log_probabilities import pack_by_length, rollout_batch
from components.policy.rl.trained_model import TrainedModel
from components.policy.rl.training_checks import check_finite
from components.policy.rl.training_sample import TrainingSample

DEMONSTRATION_LOSS = "demonstration_loss"
"""Name of the figure that updates with demonstrations have."""
OBSERVATION_LOSS = "observation_loss"
"""Name of the figure that updates with observations have."""


class StepGradient:
    """Adds the gradients of a step to the weights of `trained`."""

    def __init__(self, policy: Policy, algorithm: Algorithm, config: RLConfig, trained: TrainedModel) -> None:
        self.policy = policy
        self.algorithm = algorithm
        self.config = config
        self.trained = trained

    def add(
        self,
        samples: list[TrainingSample],
        demonstrations: Sequence[Example],
        observed: Sequence[Example],
    ) -> dict[str, float]:
        """Add this process's part of the gradient; return the step's figures, sums over all processes.

        Raises:
            TrainingError: a loss is not finite.
        """
        token_weights = self.algorithm.token_weights(samples) if samples else []
        total_tokens = sum(sample.token_count for sample in samples)
        names = ["loss", "logprob_gap", "policy_entropy", *self.algorithm.figures]
        names += [DEMONSTRATION_LOSS] if demonstrations else []
        names += [OBSERVATION_LOSS] if self.config.observation_weight else []
        parts: dict[str, list[Tensor]] = {name: [] for name in names}
        lengths = [sample.length * len(sample.rollouts) for sample in samples]
        for rows, counts in self.trained.shares(pack_by_length(lengths, self.config.batch_tokens)):
            own_samples, own_weights = [samples[i] for i in rows], [token_weights[i] for i in rows]
            figures = self.add_samples(own_samples, own_weights, total_tokens, counts)
            for name, value in figures.items():
                parts[name].append(counts * value)
            return_if_grown()
        if own_demonstrations := self.trained.shares(demonstrations):
            counting = [example for example, counts in own_demonstrations if counts]
            total, weight = sum(map(_count_loss_tokens, demonstrations)), self.config.demonstration_weight
            examples = counting or demonstrations[:1]
            loss = self._add_cross_entropy(examples, total, weight, bool(counting))
            parts[DEMONSTRATION_LOSS].append(loss)
        total, weight = sum(map(_count_loss_tokens, observed)), self.config.observation_weight
        packs = pack_by_length(list(map(len, observed)), self.config.batch_tokens)
        for rows, counts in self.trained.shares(packs):
            examples = [observed[row] for row in rows]
            parts[OBSERVATION_LOSS].append(self._add_cross_entropy(examples, total, weight, counts))
            return_if_grown()
        # Read once everything has been asked of the device: reading waits for it.
        sums = dict(zip(names, parallel.sums([sum(map(float, parts[name])) for name in names]), strict=True))
        check_finite("policy loss", sums["loss"])
        check_finite("loss on the demonstrations", sums.get(DEMONSTRATION_LOSS, 0.0))
        check_finite("loss on the observations", sums.get(OBSERVATION_LOSS, 0.0))
        return sums

    def _add_cross_entropy(
        self, examples: Sequence[Example], total_tokens: int, weight: float, counts: bool
    ) -> Tensor:
        """Add the weighted gradient of the cross-entropy; return its part of the mean over `total_tokens`.

        Args:
            counts: see `TrainedModel.shares`; without, gradient and result are zero.
        """
        batch = collate(examples, self.policy.vocabulary.pad_id).to(self.trained.device)
        with self.policy.compute.forward():
            loss = -self.trained.score(batch).logprobs.sum() / total_tokens
        self.trained.backward(weight * loss, counts)
        return counts * loss.detach()

    def add_samples(
        self,
        samples: list[TrainingSample],
        token_weights: list[float],
        total_tokens: int,
        counts: bool = True,
    ) -> dict[str, Tensor]:
        """Add the gradient of some samples of a step of `total_tokens`; return their part of its figures.

        Args:
            counts: see `TrainedModel.shares`; without, the gradient is zero.
        """
        rollouts = [rollout for sample in samples for rollout in sample.rollouts]
        batch = rollout_batch(self.policy, rollouts, self.trained.device)
        with self.policy.compute.forward():
            scores = self.trained.score(
                batch,
                temperature=self.config.temperature,
                with_entropy=True,
                with_hidden=self.algorithm.needs_hidden,
            )
        inputs = LossInputs.of_samples(samples, token_weights, scores, total_tokens, self.trained.device)
        loss, figures = self.algorithm.loss(inputs)
        self.trained.backward(loss, counts)
        assert scores.entropies is not None
        gap = (scores.logprobs.detach() - inputs.old).abs().sum()
        entropy = scores.entropies.detach().sum()
        return figures | {
            "loss": loss.detach(),
            "logprob_gap": gap.double() / total_tokens,
            "policy_entropy": entropy.double() / total_tokens,
        }


def _count_loss_tokens(example: Example) -> int:
    return sum(segment.predicted for segment in example.segments)
