"""Weights, gradients and optimiser states divided among the ranks of a launch (FSDP2).

    accelerate launch --use_fsdp --num_processes 2 -m flows.cli.app retrain          # GPUs
    ACCELERATE_USE_FSDP=true torchrun --nproc_per_node 2 -m flows.cli.app retrain    # CPUs

Each block's weights are whole only while it computes; embeddings, head and the last block stay whole during a
batch. Each process keeps a whole copy in main memory. FSDP2 averages gradients over the ranks; losses are
multiplied by their number, so the sum over the batch is the same as in one process. The numbers are those of
one process, to rounding.
"""

from __future__ import annotations

import copy
import math
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import chain
from typing import Any

import torch
from torch import Tensor
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor, distribute_tensor

from components.language.adapters import without_adapters
from components.language.training import parallel
from components.language.training.examples import Batch
from components.language.training.token_scores import token_logprobs


def is_requested() -> bool:
    """Whether this launch divides weights."""
    return parallel.size() > 1 and os.environ.get("ACCELERATE_USE_FSDP", "").lower() in ("1", "true")


class Scorer(torch.nn.Module):
    """Scores of a batch's predicted tokens (`token_logprobs`), as a module that FSDP2 can hook."""

    def __init__(self, model: Any) -> None:
        super().__init__()
        self.model = model

    def forward(
        self, batch: Batch, temperature: float = 1.0, with_entropy: bool = False, with_hidden: bool = False
    ) -> tuple[Tensor, Tensor | None, Tensor | None]:
        """Return log-probabilities, entropies and hidden states, in the order of the sequence."""
        scores = token_logprobs(
            self.model, batch, temperature=temperature, with_entropy=with_entropy, with_hidden=with_hidden
        )
        return scores.logprobs, scores.entropies, scores.hidden


@contextmanager
def sharded(model: Any) -> Iterator[Any]:
    """Yield what to train in place of `model`: itself, or a copy divided among the ranks.

    Every rank enters and leaves it. At the end the trained weights are whole in `model`, on its device.
    """
    if not is_requested():
        yield model
        return
    device = next(model.parameters()).device
    model.to("cpu")
    divided = divide(model, device)
    yield divided
    with torch.no_grad():
        for weight, trained in zip(model.parameters(), divided.parameters(), strict=True):
            weight.copy_(whole(trained))
    model.to(device)


def divide(model: Any, device: torch.device) -> Any:
    """Return a copy of `model` that is divided among the ranks; every rank must call it.

    Args:
        model: in main memory.
        device: where each rank's part lies and computes.
    """
    divided = copy.deepcopy(model)
    parallel.connect()
    mesh = init_device_mesh(device.type, (parallel.size(),))
    # The last block computes some positions alone, by calling its parts: it belongs to the outermost group.
    for block in without_adapters(divided).get_decoder().layers[:-1]:
        fully_shard(block, mesh=mesh)
    divided.scorer_of_shards = [fully_shard(Scorer(divided), mesh=mesh)]  # a list: no submodule of itself
    return divided


def scorer_of(model: Any) -> torch.nn.Module:
    """Return the module that scores batches of a model from `sharded`."""
    scorers = getattr(model, "scorer_of_shards", None)
    return scorers[0] if scorers else Scorer(model)


def whole(value: Tensor) -> Tensor:
    """Return a tensor whole, if it is divided. Every rank must call it."""
    return value.full_tensor().detach() if isinstance(value, DTensor) else value


def whole_on_first_rank(value: Any) -> Any:
    """Return a value with all divided tensors whole, in main memory, on rank 0; nothing of use elsewhere.

    Every rank must call it. One tensor at a time is whole on a device.
    """
    if isinstance(value, DTensor):
        tensor = value.full_tensor().detach()
        return None if parallel.is_worker() else tensor.cpu()
    if isinstance(value, dict):
        return {key: whole_on_first_rank(part) for key, part in value.items()}
    if isinstance(value, list):
        return [whole_on_first_rank(part) for part in value]
    return value


def divided_like(weight: Tensor, value: Tensor) -> Tensor:
    """Return a whole tensor divided as `weight` is; one of another shape, such as a count, stays as it is."""
    if not isinstance(weight, DTensor) or value.shape != weight.shape:
        return value
    return distribute_tensor(value.to(weight.device), weight.device_mesh, weight.placements)


def clip_gradients(weights: Sequence[torch.nn.Parameter], limit: float) -> float:
    """Limit the norm of all gradients together to `limit`, and return the norm before.

    Divided weights may stand beside whole ones. Where some are divided, every rank must call it.
    """
    if not any(isinstance(weight, DTensor) for weight in weights):
        return float(torch.nn.utils.clip_grad_norm_(weights, limit))
    gradients: tuple[list[Tensor], list[Tensor]] = [], []
    for weight in weights:
        if weight.grad is not None:
            gradients[isinstance(weight, DTensor)].append(weight.grad)
    norms = [whole(torch.nn.utils.get_total_norm(part)) for part in gradients if part]
    norm = math.hypot(*map(float, norms))
    factor = limit / (norm + 1e-6)  # as in torch
    if factor < 1:
        for gradient in chain(*gradients):
            gradient.mul_(factor)
    return norm
