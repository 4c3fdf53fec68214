"""One supervised training run: model, optimiser and position, updated batch by batch and resumable."""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import torch

from components.errors import TrainingError
from components.language.compute import Compute
from components.language.freed_memory import KeptMemory
from components.language.training import parallel
from components.language.training.examples import Example, batches, collate
from components.language.training.loss_watch import is_jump
from components.language.training.optimizers import OptimizerName, make_optimizers
from components.language.training.token_scores import token_logprobs

_LOG = logging.getLogger(__name__)
WARM_UP_STEPS = 30
"""Most updates in which the learning rate rises to its maximum."""
CLIP_NORM = 1.0
"""Largest norm of the gradient of one update."""
FINAL_LOSS_STEPS = 20
"""Last updates whose mean is the final loss."""


@dataclass
class TrainingRecord:
    """What a training run did: its steps, tokens (without padding), seconds, and the loss of each step.

    `jumps` holds the places in `losses` at which the loss jumped (`loss_watch.py`). A loss is the mean over
    the predicted tokens of a step, in nats a token.
    """

    steps: int = 0
    tokens: int = 0
    seconds: float = 0.0
    losses: list[float] = field(default_factory=list)
    jumps: list[int] = field(default_factory=list)

    @property
    def final_loss(self) -> float:
        """Mean loss of the last `FINAL_LOSS_STEPS` steps; NaN before the first."""
        last_losses = self.losses[-FINAL_LOSS_STEPS:]
        return sum(last_losses) / len(last_losses) if last_losses else math.nan


@dataclass
class TrainingPlan:
    """The settings of a training run.

    `total` is its length in tokens, `warm_up` in steps. `key` identifies the run in its checkpoints.
    """

    learning_rate: float
    total: int
    warm_up: int
    optimizer: OptimizerName
    batch_tokens: int
    seed: int
    pad_id: int
    compute: Compute
    key: str = ""


class TrainingRun:
    """Model, optimiser and position of a run; `state_dict` is what a checkpoint holds."""

    def __init__(self, model: Any, plan: TrainingPlan) -> None:
        self.model = model
        self.plan = plan
        self.weights = [weight for weight in model.parameters() if weight.requires_grad]
        self.optimizers = make_optimizers(model, plan.optimizer, plan.learning_rate)
        self.record = TrainingRecord()
        self.epoch = 0
        self.batch = 0
        self.learning_rate = 0.0
        self._start_time = time.monotonic()
        self._memory = KeptMemory()

    @property
    def progress(self) -> float:
        """Share of the run's tokens that are done."""
        return self.record.tokens / self.plan.total

    def remaining_batches(self, examples: Sequence[Example]) -> Iterator[list[Example]]:
        """The examples of each batch, from the current position to the end of the run."""
        while True:
            epoch_seed = self.plan.seed + 1_000_003 * self.epoch
            for number, batch_examples in enumerate(batches(examples, self.plan.batch_tokens, epoch_seed)):
                if self.progress >= 1:
                    return
                if number >= self.batch:
                    self.batch = number + 1
                    yield batch_examples
            self.epoch += 1
            self.batch = 0

    def step(self, examples: Sequence[Example]) -> float:
        """One update on a batch; returns its loss, or NaN if the batch predicts no token.

        Raises:
            TrainingError: the loss is not finite.
        """
        self.learning_rate = self._scheduled_learning_rate()
        loss = math.nan
        total_weight = sum(sum(segment.loss) for example in examples for segment in example.segments)
        if total_weight:
            (loss,) = parallel.sums([self._backward(parallel.share(examples), total_weight)])
            if not math.isfinite(loss):
                raise TrainingError(
                    f"The loss is {loss} at step {self.record.steps + 1} "
                    f"(learning rate {self.learning_rate:.2g}).",
                    "Expected a finite number.",
                    "Lower the stage's learning_rate, for example to a third, and run again.",
                )
            parallel.sum_gradients(self.weights)
            torch.nn.utils.clip_grad_norm_(self.weights, CLIP_NORM)
            self.optimizers.step(self.learning_rate)
            self.record.losses.append(loss)
            if is_jump(self.record.losses):
                self.record.jumps.append(len(self.record.losses) - 1)
                _LOG.warning("The loss jumped to %.3g at update %d.", loss, self.record.steps + 1)
        self.record.steps += 1
        self.record.tokens += sum(len(example) for example in examples)
        self.record.seconds = time.monotonic() - self._start_time
        self._memory.after_update()
        return loss

    def _scheduled_learning_rate(self) -> float:
        """Linear warm-up over the steps, times a cosine to zero over the tokens."""
        warmth = min(1.0, (self.record.steps + 1) / self.plan.warm_up)
        return self.plan.learning_rate * warmth * 0.5 * (1 + math.cos(math.pi * min(1.0, self.progress)))

    def _backward(self, examples: Sequence[Example], total_weight: float) -> float:
        """Add the gradient of this rank's `examples`; returns their part of the weighted mean."""
        if not examples:
            return 0.0
        batch = collate(examples, self.plan.pad_id).to(self.weights[0].device)
        with self.plan.compute.forward():
            logprobs = token_logprobs(self.model, batch).logprobs
            loss_part = -((logprobs * batch.loss_weights[batch.loss_mask]).sum() / total_weight)
        loss_part.backward()
        return loss_part.item()

    def state_dict(self) -> dict[str, Any]:
        """Everything that a resumed run needs, as plain values and tensors."""
        weights = {
            name: weight.detach() for name, weight in self.model.named_parameters() if weight.requires_grad
        }
        return {
            "key": self.plan.key,
            "weights": weights,
            "optimizers": self.optimizers.state_dict(),
            "record": asdict(self.record),
            "place": [self.epoch, self.batch],
            "random": torch.get_rng_state(),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue from `state`."""
        with torch.no_grad():
            for name, weight in self.model.named_parameters():
                if name in state["weights"]:
                    weight.copy_(state["weights"][name])
        self.optimizers.load_state_dict(state["optimizers"])
        self.record = TrainingRecord(**state["record"])
        self.epoch, self.batch = state["place"]
        torch.set_rng_state(state["random"])
        self._start_time = time.monotonic() - self.record.seconds
