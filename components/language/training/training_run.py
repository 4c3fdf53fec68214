"""One supervised training run: model, optimiser and position, updated batch by batch and resumable."""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import torch
from torch import Tensor

from components.errors import TrainingError
from components.language.compute import Compute
from components.language.freed_memory import return_if_grown
from components.language.training import parallel
from components.language.training.examples import Example, batches, collate
from components.language.training.loss_watch import is_jump
from components.language.training.optimizers import OptimizerName, make_optimizers
from components.language.training.sharding import divided_like, is_requested, scorer_of, whole_on_first_rank

_LOG = logging.getLogger(__name__)
WARM_UP_STEPS = 30
"""Most updates in which the learning rate rises to its maximum."""
CLIP_NORM = 1.0
"""Largest norm of the gradient of one update."""
WARNED_JUMPS = 3
"""Jumps of the loss that are printed. A batch of another kind of text, such as instructions, may be one."""
FINAL_LOSS_STEPS = 20
"""Last updates whose mean is the final loss."""


@dataclass
class TrainingRecord:
    """What a training run did: its steps, tokens (without padding), seconds, and the loss of each step.

    `jumps` holds the places in `losses` at which the loss jumped (`loss_watch.py`). A loss is the mean over
    the predicted tokens of a step, in nats a token. `speed` holds the figures of `training_speed.py`, once
    the run is over.
    """

    steps: int = 0
    tokens: int = 0
    seconds: float = 0.0
    losses: list[float] = field(default_factory=list)
    jumps: list[int] = field(default_factory=list)
    speed: dict[str, float] = field(default_factory=dict)

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


@dataclass(frozen=True)
class Update:
    """One update: its number (from 1), the tokens so far, its learning rate and its loss."""

    step: int
    tokens: int
    learning_rate: float
    loss: float


class TrainingRun:
    """Model, optimiser and position of a run; `state_dict` is what a checkpoint holds.

    A GPU works while the next update is prepared: the loss of an update is read after the next one was begun
    (`reads_late`). On a CPU it is read at once, and with several ranks too, because all of them sum it. The
    weights are the same.
    """

    def __init__(self, model: Any, plan: TrainingPlan) -> None:
        self.model = model
        self.plan = plan
        self.weights = [weight for weight in model.parameters() if weight.requires_grad]
        self.optimizers = make_optimizers(model, plan.optimizer, plan.learning_rate)
        self._score = scorer_of(model)
        self.record = TrainingRecord()
        self.epoch = 0
        self.batch = 0
        self.reads_late = self.weights[0].device.type == "cuda" and parallel.size() == 1
        self._unread: tuple[Tensor, Update] | None = None
        self._read: list[Update] = []
        self._start_time = time.monotonic()

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

    def step(self, examples: Sequence[Example]) -> None:
        """One update on a batch. `take_updates` returns it once its loss was read.

        Raises:
            TrainingError: the loss of this update, or of the one before, is not finite.
        """
        rate = self._scheduled_learning_rate()
        total_weight = sum(sum(segment.loss) for example in examples for segment in example.segments)
        part = None
        if total_weight:
            part = self._backward(parallel.share(examples), total_weight, examples[:1])
            if not is_requested():
                parallel.sum_gradients(self.weights)
            torch.nn.utils.clip_grad_norm_(self.weights, CLIP_NORM)
            self.optimizers.step(rate)
        self.record.steps += 1
        self.record.tokens += sum(len(example) for example in examples)
        self.read_losses()
        update = Update(self.record.steps, self.record.tokens, rate, math.nan)
        if part is None:
            self._read.append(update)
        else:
            self._unread = part, update
        if not self.reads_late:
            self.read_losses()
        self.record.seconds = time.monotonic() - self._start_time
        return_if_grown()

    def read_losses(self) -> None:
        """Read the loss of the last update, if that has not happened.

        Raises:
            TrainingError: it is not finite.
        """
        if self._unread is None:
            return
        (part, update), self._unread = self._unread, None
        (loss,) = parallel.sums([part.item()])
        if not math.isfinite(loss):
            raise TrainingError(
                f"The loss is {loss} at step {update.step} (learning rate {update.learning_rate:.2g}).",
                "Expected a finite number.",
                "Lower the stage's learning_rate, for example to a third, and run again.",
            )
        self.record.losses.append(loss)
        self._read.append(replace(update, loss=loss))
        if is_jump(self.record.losses):
            jumps = self.record.jumps
            jumps.append(len(self.record.losses) - 1)
            if len(jumps) <= WARNED_JUMPS:
                further = "; later jumps are not printed" if len(jumps) == WARNED_JUMPS else ""
                _LOG.warning("The loss jumped to %.3g at update %d%s.", loss, update.step, further)

    def take_updates(self) -> list[Update]:
        """The updates whose losses were read since the last call."""
        updates, self._read = self._read, []
        return updates

    def _scheduled_learning_rate(self) -> float:
        """Linear warm-up over the steps, times a cosine to zero over the tokens."""
        warmth = min(1.0, (self.record.steps + 1) / self.plan.warm_up)
        return self.plan.learning_rate * warmth * 0.5 * (1 + math.cos(math.pi * min(1.0, self.progress)))

    def _backward(
        self, examples: Sequence[Example], total_weight: float, stand_in: Sequence[Example]
    ) -> Tensor:
        """Add the gradient of this rank's `examples`; returns their part of the weighted mean, fp32 [].

        Args:
            stand_in: computed without weight by a rank that has no examples, where weights are divided: all
                ranks must compute, since each needs the weights of the others.
        """
        device = self.weights[0].device
        if not examples and not is_requested():
            return torch.zeros((), device=device)
        batch = collate(examples or stand_in, self.plan.pad_id).to(device)
        with self.plan.compute.forward():
            logprobs, _, _ = self._score(batch)
            loss_part = -((logprobs * batch.loss_weights).sum() / total_weight)
        if not examples:
            loss_part = 0.0 * loss_part
        # Gradients of divided weights are averaged over the ranks, not summed.
        (loss_part * parallel.size() if is_requested() else loss_part).backward()
        return loss_part.detach()

    def state_dict(self) -> dict[str, Any]:
        """Everything that a resumed run needs, as plain values and tensors.

        Where weights are divided, every rank must call it, and rank 0 alone has them.
        """
        self.read_losses()
        weights = {
            name: whole_on_first_rank(weight.detach())
            for name, weight in self.model.named_parameters()
            if weight.requires_grad
        }
        return {
            "key": self.plan.key,
            "weights": weights,
            "optimizers": whole_on_first_rank(self.optimizers.state_dict()),
            "record": asdict(self.record),
            "place": [self.epoch, self.batch],
            "random": torch.get_rng_state(),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue from `state`."""
        with torch.no_grad():
            for name, weight in self.model.named_parameters():
                if name in state["weights"]:
                    weight.copy_(divided_like(weight, state["weights"][name]))
        self.optimizers.load_state_dict(state["optimizers"])
        self.record = TrainingRecord(**state["record"])
        self.epoch, self.batch = state["place"]
        torch.set_rng_state(state["random"])
        self._start_time = time.monotonic() - self.record.seconds
