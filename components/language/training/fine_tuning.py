"""Log-probabilities of a batch, and supervised fine-tuning that can be stopped and resumed.

`token_logprobs` computes logits only where a token is predicted: with whole episodes packed as one sequence
that is a small part of all positions, and a large vocabulary costs more than the model itself.
"""

from __future__ import annotations

import hashlib
import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import torch
from peft import PeftModel
from torch import Tensor
from torch.nn.functional import embedding
from transformers import PreTrainedModel

from components.errors import ConfigError, DataError, TrainingError
from components.language.backbone import (
    PROBE_TOLERANCE,
    has_plain_head,
    longest_sequence,
    shorter_or_longer,
    without_adapters,
)
from components.language.compute import Compute
from components.language.kernels.cache_attention import attention_of, evaluating
from components.language.kernels.last_block import can_narrow, hidden_at
from components.language.kernels.tree_attention import TREE
from components.language.sampled_ids import entropy_of, without_unknown
from components.language.training import parallel
from components.language.training.checkpoints import check_key, limit_of, read_checkpoint, save_checkpoint
from components.language.training.examples import Batch, Example, Segment, batches, collate
from components.language.training.optimizers import OptimizerName, make_optimizers

WARM_UP_STEPS = 30
CLIP_NORM = 1.0
FINAL_LOSS_STEPS = 20

OnStep = Callable[[int, int, float], None]
OnFigures = Callable[[int, Mapping[str, float]], None]
"""Told of each update, counted from 0, its `loss` (nats a token) and `learning_rate`."""


@dataclass
class TokenScores:
    """Scores of the n predicted tokens of a batch, row by row in the order of the sequence.

    `logprobs` fp32 [n]; `rows` and `columns` int64 [n], where each token stands in the batch; `entropies`
    fp32 [n] in nats, or None; `hidden` [n, H], the last hidden states that the tokens were predicted from, or
    None.
    """

    logprobs: Tensor
    rows: Tensor
    columns: Tensor
    entropies: Tensor | None = None
    hidden: Tensor | None = None


@dataclass
class TrainingRecord:
    """What a training run did: steps, tokens (padding excluded), seconds, the mean loss (nats a token) of
    each step.
    """

    steps: int = 0
    tokens: int = 0
    seconds: float = 0.0
    losses: list[float] = field(default_factory=list)

    @property
    def final_loss(self) -> float:
        """Mean of the last steps' losses."""
        last = self.losses[-FINAL_LOSS_STEPS:]
        return sum(last) / len(last) if last else math.nan


def token_logprobs(
    model: PreTrainedModel | PeftModel,
    batch: Batch,
    *,
    temperature: float = 1.0,
    with_entropy: bool = False,
    with_hidden: bool = False,
) -> TokenScores:
    """Log-probability of each token under `batch.loss_mask`, with gradients, under the softmax at
    `temperature`.

    Raises:
        ConfigError: `with_hidden`, and the model's hidden states are not to be had.
    """
    rows, columns = batch.loss_mask.nonzero(as_tuple=True)
    found, hidden = _logits(without_adapters(model), batch, rows, batch.predecessor[rows, columns])
    if with_hidden and hidden is None:
        name = without_adapters(model).config.model_type
        raise ConfigError(
            f"The hidden states of {name} cannot be read.",
            next_step="Take algorithm: grpo, or a Llama or Qwen backbone.",
        )
    logits = without_unknown(without_adapters(model), found.float())
    distribution = torch.log_softmax(logits if temperature == 1 else logits / temperature, dim=-1)
    chosen = distribution.gather(1, batch.input_ids[rows, columns][:, None])[:, 0]
    entropies = entropy_of(without_adapters(model), distribution) if with_entropy else None
    return TokenScores(chosen, rows, columns, entropies, hidden if with_hidden else None)


def _logits(
    model: PreTrainedModel, batch: Batch, rows: Tensor, places: Tensor
) -> tuple[Tensor, Tensor | None]:
    """Logits [n, V] at n places of the batch, and the hidden states [n, H] that they come from where the head
    is a plain one.
    """
    inputs: dict[str, Any] = {"input_ids": batch.input_ids, "use_cache": False}
    if batch.tree is not None:
        # Without branches positions are left out too: transformers would take them for packed sequences.
        inputs["position_ids"] = batch.position_ids
    if not has_plain_head(model):
        return _states_at(model(**inputs, attention_mask=batch.attention).logits, rows, places), None
    if batch.tree is None and can_narrow(model):
        chosen = hidden_at(model, batch.input_ids, rows, places)
        return model.get_output_embeddings()(chosen), chosen
    if batch.tree is None:
        hidden = model.get_decoder()(**inputs).last_hidden_state
    else:
        with attention_of(model, TREE):
            hidden = model.get_decoder()(**inputs, tree=batch.tree).last_hidden_state
    chosen = _states_at(hidden, rows, places)
    return model.get_output_embeddings()(chosen), chosen


def _states_at(states: Tensor, rows: Tensor, places: Tensor) -> Tensor:
    """The states [n, d] at n places of `states` [B, L, d]; a place may be asked for many times, as by all
    branches of a trunk.

    An embedding lookup adds the gradients of one place in a fixed order. Indexing adds them in the order in
    which threads arrive, so weights differed in their last bits from run to run.
    """
    return embedding(rows * states.shape[1] + places, states.flatten(0, 1))


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
    """Train `model` in place on the mean loss of the flagged tokens: warm-up, then a cosine to zero over the
    tokens.

    It ends after `epochs` passes (a fraction is a fraction of the tokens) or after `total_tokens` if given.
    The same seed on the same machine gives the same weights. After each update `on_step(step, tokens, loss)`
    is called, and `on_figures(step, figures)`, whose steps count from 0.

    With `checkpoint` the state is saved to that file every `checkpoint_every` steps and at the end, and a
    file that is already there is resumed from; whoever has saved the model may delete it. It trains on the
    device that `model` is on.

    Raises:
        TrainingError: nothing to learn from, a loss that is not finite, or a checkpoint of another training.
        DataError: an example is longer than the model's longest sequence.
        ConfigError: the architecture cannot be trained on branches, or has no gradient checkpointing.
    """
    per_epoch = sum(len(example) for example in examples)
    if not examples or not any(any(segment.loss) for example in examples for segment in example.segments):
        raise TrainingError(
            f"{len(examples)} examples without one token to predict.",
            "Expected at least one.",
            "Check that collect recorded trajectories.",
        )
    total = total_tokens if total_tokens is not None else max(1, round(epochs * per_epoch))
    _refuse_too_long(without_adapters(model), examples)
    if not has_plain_head(without_adapters(model)):
        probe_branches(model)
    warm_up = _warm_up(examples, batch_tokens, total / per_epoch)
    plan = _Plan(learning_rate, total, warm_up, optimizer, batch_tokens, seed, pad_id, compute)
    state = None
    if checkpoint is not None:
        plan.key = _fingerprint(model, examples, plan)
        state = _saved(checkpoint, plan.key, limit_of(model))
    return parallel.together(
        _train, model, examples, plan, state, own=(checkpoint, checkpoint_every, on_step, on_figures)
    )


@dataclass
class _Plan:
    """The settings of a training run; `key` names it."""

    learning_rate: float
    total: int
    warm_up: int
    optimizer: OptimizerName
    batch_tokens: int
    seed: int
    pad_id: int
    compute: Compute
    key: str = ""


def _train(
    model: Any,
    examples: Sequence[Example],
    plan: _Plan,
    state: dict[str, Any] | None,
    checkpoint: Path | None = None,
    checkpoint_every: int = 0,
    on_step: OnStep | None = None,
    on_figures: OnFigures | None = None,
) -> TrainingRecord:
    """All of a run that remains after `state`; the same in every process, of which the first alone saves and
    tells.
    """
    run = _Run(model, plan)
    if state is not None:
        run.load_state_dict(state)
    with plan.compute.training(model):
        for group in run.remaining(examples):
            loss = run.step(group)
            if checkpoint is not None and run.record.steps % checkpoint_every == 0:
                save_checkpoint(checkpoint, run.state_dict())
            if on_step is not None:
                on_step(run.record.steps, run.record.tokens, loss)
            if on_figures is not None:
                on_figures(run.record.steps - 1, {"loss": loss, "learning_rate": run.rate})
    if checkpoint is not None:
        save_checkpoint(checkpoint, run.state_dict())
    return run.record


class _Run:
    """Model, optimiser and the place reached; `state_dict` is what a checkpoint holds."""

    def __init__(self, model: Any, plan: _Plan) -> None:
        self.model, self.plan = model, plan
        self.weights = [weight for weight in model.parameters() if weight.requires_grad]
        self.optimizers = make_optimizers(model, plan.optimizer, plan.learning_rate)
        self.record, self.epoch, self.batch = TrainingRecord(), 0, 0
        self.began, self.rate = time.monotonic(), 0.0

    @property
    def progress(self) -> float:
        """Share of the run's tokens behind us."""
        return self.record.tokens / self.plan.total

    def _seconds(self) -> float:
        return time.monotonic() - self.began

    def remaining(self, examples: Sequence[Example]) -> Iterator[list[Example]]:
        """The examples of each batch from the place reached until the run is over."""
        while True:
            for number, group in enumerate(
                batches(examples, self.plan.batch_tokens, self.plan.seed + 1_000_003 * self.epoch)
            ):
                if self.progress >= 1:
                    return
                if number >= self.batch:
                    self.batch = number + 1
                    yield group
            self.epoch, self.batch = self.epoch + 1, 0

    def step(self, group: Sequence[Example]) -> float:
        """One update; returns its loss."""
        warmth = min(1.0, (self.record.steps + 1) / self.plan.warm_up)
        rate = self.plan.learning_rate * warmth * 0.5 * (1 + math.cos(math.pi * min(1.0, self.progress)))
        self.rate = rate
        loss, wanted = math.nan, sum(sum(segment.loss) for example in group for segment in example.segments)
        if wanted:
            (loss,) = parallel.sums([self._backward(parallel.share(group), wanted)])
            if not math.isfinite(loss):
                raise TrainingError(
                    f"The loss is {loss} at step {self.record.steps + 1} (learning rate {rate:.2g}).",
                    "Expected a finite number.",
                    "Lower the stage's learning_rate, for example to a third, and run again.",
                )
            parallel.sum_gradients(self.weights)
            torch.nn.utils.clip_grad_norm_(self.weights, CLIP_NORM)
            self.optimizers.step(rate)
            self.record.losses.append(loss)
        self.record.steps += 1
        self.record.tokens += sum(len(example) for example in group)
        self.record.seconds = self._seconds()
        return loss

    def _backward(self, rows: Sequence[Example], wanted: int) -> float:
        """The gradient of these examples' part in the mean over `wanted` tokens; that part."""
        if not rows:
            return 0.0
        batch = collate(rows, self.plan.pad_id).to(self.weights[0].device)
        with self.plan.compute.forward():
            part = -(token_logprobs(self.model, batch).logprobs.sum() / wanted)
        part.backward()
        return part.item()

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
        """Go on from `state`."""
        with torch.no_grad():
            for name, weight in self.model.named_parameters():
                if name in state["weights"]:
                    weight.copy_(state["weights"][name])
        self.optimizers.load_state_dict(state["optimizers"])
        self.record = TrainingRecord(**state["record"])
        self.epoch, self.batch = state["place"]
        torch.set_rng_state(state["random"])
        self.began = time.monotonic() - self.record.seconds


def _saved(path: Path, key: str, limit: int) -> dict[str, Any] | None:
    """The state at `path`, if there is one; it must be of this very training."""
    if not path.is_file():
        return None
    state = read_checkpoint(path, limit)
    check_key(path, state, key)
    return state


def _refuse_too_long(model: PreTrainedModel, examples: Sequence[Example]) -> None:
    longest, deepest = longest_sequence(model.config), max(example.depth for example in examples)
    if deepest > longest:
        raise DataError(
            f"An example has {deepest} tokens from its beginning to the end of a branch.",
            f"The model takes {longest}.",
            shorter_or_longer(model.config),
        )


def probe_branches(model: PreTrainedModel | PeftModel) -> None:
    """Compare a trunk with a branch with plain sequences, on an architecture that is not known to agree.

    Raises:
        ConfigError: it says something else, for example since it takes no mask or no positions from its
            caller.
    """
    inner = without_adapters(model)
    name, cure = (
        inner.config.model_type,
        "Use a backbone of another architecture, for example Llama, Qwen or Mistral.",
    )
    parts = [
        Segment([1, 2, 3], [False] * 3),
        Segment([4, 5], [False, True], branch=True),
        Segment([6, 7], [False, True]),
    ]
    alone = torch.tensor([[1, 2, 3, 4, 5], [1, 2, 3, 6, 7]], device=inner.device)
    try:
        with evaluating(inner):
            found = token_logprobs(inner, collate([Example(parts)], 0).to(inner.device)).logprobs
            # The plainest attention there is: where it says something else, ours leaves out what the
            # architecture adds to attention.
            with attention_of(inner, "eager"):
                plain = inner(input_ids=alone, use_cache=False).logits[:, -2].float()
            plain = without_unknown(inner, plain).log_softmax(-1)
        gap = float((plain.gather(1, alone[:, -1:])[:, 0] - found).abs().max())
        if not gap < PROBE_TOLERANCE:
            raise ConfigError(
                f"With branches {name} is off by {gap:.2g} nats.",
                "Expected the same numbers as without.",
                cure,
            )
    except (TypeError, AttributeError, RuntimeError, IndexError, KeyError, ValueError) as error:
        raise ConfigError(
            f"The architecture {name} cannot be trained on branches: {error}", next_step=cure
        ) from error


def _warm_up(examples: Sequence[Example], batch_tokens: int, epochs: float) -> int:
    """Warm-up steps: at most a tenth of a short run."""
    steps = epochs * sum(1 for _ in batches(examples, batch_tokens, 0))
    return max(1, min(WARM_UP_STEPS, int(steps / 10)))


def _fingerprint(model: Any, examples: Sequence[Example], plan: _Plan) -> str:
    settings: list[float | str] = [
        plan.learning_rate,
        plan.batch_tokens,
        plan.seed,
        plan.total,
        plan.optimizer,
    ]
    settings += [] if plan.compute.precision == "fp32" else [plan.compute.precision]
    settings += [] if parallel.size() == 1 else [parallel.size()]
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
