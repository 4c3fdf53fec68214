"""Data-parallel training in the processes (ranks) of one launch: each computes a part of every batch.

    accelerate launch --multi_gpu --num_processes 2 -m flows.cli.app retrain     # GPUs
    torchrun --nproc_per_node 2 -m flows.cli.app retrain                         # CPUs, one or more machines

Rank 0 runs the command. The other ranks are workers: they wait in `serve` for jobs. A job is a function and
its arguments; every rank calls it with the state that it keeps itself. The gradients of the ranks are summed.
Random numbers and decisions within a job depend only on values that all ranks share, so that the ranks stay
identical. In a single process, the usual case, a job is a plain call.
"""

from __future__ import annotations

import io
import os
from collections.abc import Callable, Iterable, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any, TypeVar

from components.errors import ConfigError, DreamGymError

if TYPE_CHECKING:
    import torch

Item = TypeVar("Item")
Answer = TypeVar("Answer")

_BROKEN = "broken"
"""State of rank 0 after it failed within a job."""
_rank_state: dict[str, Any] = {}


def size() -> int:
    """How many processes this launch has."""
    return int(os.environ.get("WORLD_SIZE", "1"))


def is_worker() -> bool:
    """True in every process of a launch but the first."""
    return int(os.environ.get("RANK", "0")) > 0


def share(items: Sequence[Item]) -> list[Item]:
    """This rank's part of `items`; the parts of all ranks together are `items`."""
    return list(items[int(os.environ.get("RANK", "0")) :: size()])


def run_on_all_ranks(function: Callable[..., Answer], *arguments: Any, own: Sequence[Any] = ()) -> Answer:
    """Call `function(*arguments)` on every rank; returns the result of rank 0.

    Args:
        function: defined in a module, so that it can be pickled.
        arguments: pickled for the workers.
        own: further arguments that rank 0 alone passes.

    Raises:
        ConfigError: the launch asks for something else than data parallelism or sharding.
    """
    if size() == 1 or _rank_state.get(_BROKEN):
        return function(*arguments, *own)
    _broadcast_job((function, arguments))
    try:
        return function(*arguments, *own)
    except DreamGymError:
        raise  # the workers have raised it too, and wait for the next job
    except BaseException:
        _rank_state[_BROKEN] = True  # the workers may be waiting for this rank within the job
        raise


def leave_job() -> None:
    """Rank 0 fails in a job where the workers do not, such as on a full disk: they wait within the job.

    The jobs that follow are its own alone, and the launcher ends the workers with it.
    """
    if size() > 1:
        _rank_state[_BROKEN] = True


def set_rank_state(name: str, value: Any) -> None:
    """Keep a value in this process for later jobs."""
    _rank_state[name] = value


def drop_rank_state(name: str) -> None:
    """Forget what this process keeps under `name`, if anything."""
    _rank_state.pop(name, None)


def get_rank_state(name: str) -> Any:
    """The value that this process keeps under `name`."""
    return _rank_state[name]


def sum_gradients(weights: Iterable[torch.nn.Parameter]) -> None:
    """Replace the gradients of `weights` on every rank by their sum over all ranks."""
    weights = list(weights)
    if size() == 1 or not weights:
        return
    import torch

    gradients = [torch.zeros_like(weight) if weight.grad is None else weight.grad for weight in weights]
    summed = _accelerator().reduce(torch.cat([gradient.flatten() for gradient in gradients]), "sum")
    for weight, part in zip(weights, summed.split([weight.numel() for weight in weights]), strict=True):
        weight.grad = part.view_as(weight)


def sums(values: Sequence[float]) -> list[float]:
    """The sum over all ranks of each of `values`."""
    if size() == 1:
        return list(values)
    import torch

    accelerator = _accelerator()
    summed: list[float] = accelerator.reduce(
        torch.tensor(values, dtype=torch.float64, device=accelerator.device), "sum"
    ).tolist()
    return summed


def serve() -> None:
    """Run jobs in a worker, one after the other, until rank 0 calls `stop_workers`."""
    while (job := _broadcast_job(None)) is not None:
        function, arguments = job
        try:
            function(*arguments)
        except DreamGymError:
            continue  # rank 0 raises the same error and reports it


def stop_workers() -> None:
    """End the workers' loops; rank 0 calls it at the end of the command.

    After a failure of rank 0 within a job it does nothing: no worker listens, and the launcher ends them.
    """
    if size() > 1 and not _rank_state.get(_BROKEN):
        _broadcast_job(None)


def connect() -> None:
    """Connect the ranks, if they are not; every rank calls it."""
    _accelerator()


def gather(items: Sequence[Item]) -> list[Item]:
    """The items of all ranks, those of rank 0 first, on every rank; they are pickled."""
    if size() == 1:
        return list(items)
    import torch.distributed as dist

    parts: list[Any] = [None] * size()
    dist.all_gather_object(parts, list(items), group=_messages())
    return [item for part in parts for item in part]


def _broadcast_job(job: Any) -> Any:
    """The job of rank 0, on every rank; what lies on rank 0's GPU then lies on the rank's own."""
    import torch
    import torch.distributed as dist

    messages = _messages()
    buffer = io.BytesIO()
    if not is_worker():
        torch.save(job, buffer)
    received = [buffer.getvalue()]
    dist.broadcast_object_list(received, src=0, group=messages)
    if not is_worker():
        return job
    places = {"cuda:0": str(_accelerator().device)}  # rank 0 has the first GPU
    return torch.load(io.BytesIO(received[0]), map_location=places, weights_only=False)  # from rank 0


@cache
def _messages() -> Any:
    """The group of all ranks for objects: they travel through main memory, also where gradients do not."""
    import torch.distributed as dist

    _accelerator()
    return dist.new_group(backend="gloo")


@cache
def _accelerator() -> Any:
    """The connection of the ranks. Raises ConfigError if the launch asks for something else."""
    from accelerate import Accelerator, DistributedType

    accelerator = Accelerator()
    kinds = (DistributedType.MULTI_CPU, DistributedType.MULTI_GPU, DistributedType.FSDP)
    if accelerator.distributed_type not in kinds:
        raise ConfigError(
            f"The launch asks for {accelerator.distributed_type.value}.",
            "Expected MULTI_GPU, MULTI_CPU or FSDP.",
            "Launch with `accelerate launch --multi_gpu` or `--use_fsdp` or, on CPUs, `torchrun`.",
        )
    return accelerator
