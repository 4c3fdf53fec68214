"""Supervised fine-tuning that can be stopped and resumed."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from peft import PeftModel
from transformers import PreTrainedModel

from components.errors import DataError, DreamGymError, TrainingError
from components.language.adapters import without_adapters
from components.language.compute import Compute
from components.language.output_head import has_plain_head
from components.language.sequence_limits import longest_sequence, shorter_or_longer
from components.language.training import parallel
from components.language.training.branch_probe import probe_branches
from components.language.training.checkpoints import (
    check_key,
    model_checkpoint_limit,
    read_checkpoint,
    save_checkpoint,
)
from components.language.training.examples import Example, batches
from components.language.training.loss_watch import require_recovered
from components.language.training.optimizers import OptimizerName
from components.language.training.sharding import is_requested, sharded
from components.language.training.training_run import (
    WARM_UP_STEPS,
    TrainingPlan,
    TrainingRecord,
    TrainingRun,
)
from components.language.training.training_speed import SpeedWatch

CHECKPOINT_SECONDS = 600.0
"""Longest time between two checkpoints, if an update does not take longer."""
OnStep = Callable[[int, int, float], None]
"""Called after each update with its step (counted from 1), the tokens so far and the loss (nats a token)."""
OnFigures = Callable[[int, Mapping[str, float]], None]
"""Called after each update with its step (counted from 0), its `loss` and its `learning_rate`."""


def supervised_finetune(
    model: PreTrainedModel | PeftModel,
    examples: Sequence[Example],
    *,
    epochs: float,
    learning_rate: float,
    batch_tokens: int,
    seed: int,
    optimizer: OptimizerName = "adamw",
    on_step: OnStep | None = None,
    on_figures: OnFigures | None = None,
    total_tokens: int | None = None,
    checkpoint: Path | None = None,
    checkpoint_every: int = 200,
    pad_id: int = 0,
    compute: Compute = Compute(),
) -> TrainingRecord:
    """Train `model` in place on the mean loss of the tokens that `Segment.loss` flags.

    The learning rate warms up, then follows a cosine to zero over the tokens. The same seed on the same
    machine gives the same weights. Training happens on the device of `model`.

    Args:
        epochs: passes over the examples; a fraction is a fraction of their tokens.
        total_tokens: length of the run in tokens, instead of `epochs`.
        checkpoint: the state is saved to this file every `checkpoint_every` steps, after `CHECKPOINT_SECONDS`
            at the latest, and at the end. A file that is already there is resumed from. The caller may delete
            it once nothing is left to do that would need the training again.

    Raises:
        TrainingError: there is nothing to learn from, the loss is not finite or jumped and did not come
            back, or the checkpoint is of another run.
        DataError: an example is longer than the model's longest sequence.
        ConfigError: the architecture cannot be trained on branches, or has no gradient checkpointing.
    """
    _require_loss_tokens(examples)
    epoch_tokens = sum(len(example) for example in examples)
    total = total_tokens if total_tokens is not None else max(1, round(epochs * epoch_tokens))
    refuse_too_long(without_adapters(model), examples)
    if not has_plain_head(without_adapters(model)):
        probe_branches(model)
    warm_up = _warm_up_steps(examples, batch_tokens, total / epoch_tokens)
    plan = TrainingPlan(learning_rate, total, warm_up, optimizer, batch_tokens, seed, pad_id, compute)
    state = None
    if checkpoint is not None:
        plan.key = _fingerprint(model, examples, plan)
        state = _read_saved_state(checkpoint, plan.key, model_checkpoint_limit(model))
    observer = _Observer(checkpoint, checkpoint_every, on_step, on_figures)
    return parallel.run_on_all_ranks(_train, model, examples, plan, state, own=(observer,))


@dataclass
class _Observer:
    """What rank 0 does after an update: save a checkpoint, call the caller's functions."""

    checkpoint: Path | None = None
    checkpoint_every: int = 0
    on_step: OnStep | None = None
    on_figures: OnFigures | None = None
    _saved_at: float = field(default_factory=time.monotonic)

    def is_due(self, run: TrainingRun) -> bool:
        """Whether a checkpoint is to be saved after this update."""
        waited = time.monotonic() - self._saved_at
        return self.checkpoint is not None and (
            run.record.steps % self.checkpoint_every == 0 or waited >= CHECKPOINT_SECONDS
        )

    def save(self, state: dict[str, Any]) -> None:
        """Save a state of the run, if it has checkpoints."""
        if self.checkpoint is not None:
            save_checkpoint(self.checkpoint, state)
            self._saved_at = time.monotonic()

    def report(self, run: TrainingRun) -> None:
        """Tell the caller of the updates whose losses are known."""
        for update in run.take_updates():
            if self.on_step is not None:
                self.on_step(update.step, update.tokens, update.loss)
            if self.on_figures is not None:
                self.on_figures(update.step - 1, {"loss": update.loss, "learning_rate": update.learning_rate})


def _train(
    model: Any,
    examples: Sequence[Example],
    plan: TrainingPlan,
    state: dict[str, Any] | None,
    observer: _Observer | None = None,
) -> TrainingRecord:
    """The rest of a run after `state`. Every rank calls it; rank 0 alone passes an `observer`."""
    tokens = sum(map(len, examples))
    predicted = sum(s.predicted for example in examples for s in example.segments)
    with sharded(model) as trained:
        run = TrainingRun(trained, plan)
        if state is not None:
            run.load_state_dict(state)
        first_step = run.record.steps
        watch = SpeedWatch(trained, predicted / tokens)
        with plan.compute.training(trained):
            for batch_examples in run.remaining_batches(examples):
                run.step(batch_examples)
                watch.look()
                _observe(run, observer)
        run.read_losses()
        if run.record.steps > first_step:
            run.record.speed = watch.figures(run.record.tokens, run.record.seconds)
        _observe(run, observer, is_over=True)
        require_recovered(run.record.losses)
    return run.record


def _observe(run: TrainingRun, observer: _Observer | None, *, is_over: bool = False) -> None:
    """Save a checkpoint if one is due or the run is over, then report. Every rank calls it."""
    is_due = observer is not None and observer.checkpoint is not None and (is_over or observer.is_due(run))
    if is_requested():
        is_due = parallel.sums([float(is_due)])[0] > 0
    state = run.state_dict() if is_due else None
    if observer is not None:
        try:
            if state is not None:
                observer.save(state)
            observer.report(run)
        except DreamGymError:
            parallel.leave_job()
            raise


def _read_saved_state(path: Path, key: str, limit: int) -> dict[str, Any] | None:
    """The state at `path`, if there is one; raises TrainingError if it is of another run."""
    if not path.is_file():
        return None
    state = read_checkpoint(path, limit)
    check_key(path, state, key)
    return state


def _require_loss_tokens(examples: Sequence[Example]) -> None:
    """Raise TrainingError if no token of `examples` is to be predicted."""
    if not examples or not any(any(segment.loss) for example in examples for segment in example.segments):
        raise TrainingError(
            f"{len(examples)} examples without one token to predict.",
            "Expected at least one.",
            "Check that collect recorded trajectories.",
        )


def refuse_too_long(model: PreTrainedModel, examples: Sequence[Example]) -> None:
    """Raise DataError if an example is deeper than the model's longest sequence."""
    longest = longest_sequence(model.config)
    deepest = max((example.depth for example in examples), default=0)
    if deepest > longest:
        raise DataError(
            f"An example has {deepest} tokens from its beginning to the end of a branch.",
            f"The model takes {longest}.",
            shorter_or_longer(model.config),
        )


def _warm_up_steps(examples: Sequence[Example], batch_tokens: int, epochs: float) -> int:
    """Steps of warm-up: `WARM_UP_STEPS`, but at most a tenth of the run."""
    steps = epochs * sum(1 for _ in batches(examples, batch_tokens, 0))
    return max(1, min(WARM_UP_STEPS, int(steps / 10)))


def _fingerprint(model: Any, examples: Sequence[Example], plan: TrainingPlan) -> str:
    """A hash of the weights, the examples and the settings: the key of the run's checkpoints.

    The number of processes is not in it: a checkpoint holds whole tensors, and any number goes on from it.
    """
    settings: list[float | str] = [
        plan.learning_rate,
        plan.batch_tokens,
        plan.seed,
        plan.total,
        plan.optimizer,
    ]
    settings += [] if plan.compute.precision == "fp32" else [plan.compute.precision]
    digest = hashlib.sha256(repr(settings).encode())
    for name, weight in model.named_parameters():
        digest.update(
            f"{name} {tuple(weight.shape)} {weight.requires_grad} "
            f"{weight.detach().double().sum().item()!r}".encode()
        )
    for example in examples:
        for segment in example.segments:
            digest.update(repr((segment.tokens, segment.loss, segment.branch)).encode())
    return digest.hexdigest()
