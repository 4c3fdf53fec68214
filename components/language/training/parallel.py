"""Training in the processes of one launch: each takes a part of every batch, and their gradients are summed
(data parallel).

    accelerate launch --multi_gpu --num_processes 2 -m flows.cli.app retrain     # GPUs
    torchrun --nproc_per_node 2 -m flows.cli.app retrain                         # the CPUs of one or several
    machines

The first process runs the command. The others, its helpers, wait in `serve` for jobs: a function and its
arguments, which every process calls with what it holds itself. What is random or decided within a job is so
by values that all processes share, so that they stay alike. In a single process, which is the usual case, a
job is a plain call.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any, TypeVar

from components.errors import ConfigError, DreamGymError

if TYPE_CHECKING:
    import torch

Item = TypeVar("Item")
Answer = TypeVar("Answer")

_held: dict[str, Any] = {}


def size() -> int:
    """Processes of this launch."""
    return int(os.environ.get("WORLD_SIZE", "1"))


def helps() -> bool:
    """True in every process of a launch but the first."""
    return int(os.environ.get("RANK", "0")) > 0


def share(items: Sequence[Item]) -> list[Item]:
    """This process's part of what all of them are to compute; together the parts are `items`."""
    return list(items[int(os.environ.get("RANK", "0")) :: size()])


def together(function: Callable[..., Answer], *given: Any, own: Sequence[Any] = ()) -> Answer:
    """Call `function(*given)` in every process; the first adds its `own` arguments, and its answer is the
    answer.

    Args: given: pickled for the helpers; function: one of a module, not a local one.

    Raises:
        ConfigError: the launch shards weights.
    """
    if size() > 1:
        _tell((function, given))
    return function(*given, *own)


def hold(name: str, value: Any) -> None:
    """Keep a value of this process for later jobs."""
    _held[name] = value


def held(name: str) -> Any:
    """What this process holds under a name."""
    return _held[name]


def sum_gradients(weights: Iterable[torch.nn.Parameter]) -> None:
    """Give every process the sum of all processes' gradients."""
    if size() == 1:
        return
    import torch

    weights = list(weights)
    grads = [torch.zeros_like(weight) if weight.grad is None else weight.grad for weight in weights]
    summed = _accelerator().reduce(torch.cat([grad.flatten() for grad in grads]), "sum")
    for weight, part in zip(weights, summed.split([weight.numel() for weight in weights]), strict=True):
        weight.grad = part.view_as(weight)


def sums(values: Sequence[float]) -> list[float]:
    """The sums over all processes, one for each of `values`."""
    if size() == 1:
        return list(values)
    import torch

    accelerator = _accelerator()
    found: list[float] = accelerator.reduce(
        torch.tensor(values, dtype=torch.float64, device=accelerator.device), "sum"
    ).tolist()
    return found


def serve() -> None:
    """A helper's life: jobs, one after the other, until the first process dismisses it."""
    while (job := _tell(None)) is not None:
        function, given = job
        try:
            function(*given)
        except DreamGymError:
            continue  # the first process has raised the same, and says so


def dismiss() -> None:
    """Let the helpers go; for the first process, at its end."""
    if size() > 1:
        _tell(None)


def _tell(job: Any) -> Any:
    """What the first process has said, in every process."""
    from accelerate.utils import broadcast_object_list

    _accelerator()
    said: Any = broadcast_object_list([job])[0]
    return said


@cache
def _accelerator() -> Any:
    from accelerate import Accelerator, DistributedType

    accelerator = Accelerator()
    if accelerator.distributed_type not in (DistributedType.MULTI_CPU, DistributedType.MULTI_GPU):
        found = f"The launch asks for {accelerator.distributed_type.value}."
        raise ConfigError(
            found,
            "Expected MULTI_GPU or MULTI_CPU.",
            "Launch with `accelerate launch --multi_gpu` or, on CPUs, `torchrun`.",
        )
    return accelerator
