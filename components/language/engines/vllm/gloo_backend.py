"""A backend `gloo` of vLLM's weight transfer: weights over TCP, for servers without a GPU.

vLLM's own backends need GPUs: `nccl` between devices, `ipc` on one. A server started with
`--weight-transfer-config '{"backend": "gloo"}'` finds this one by the entry point `vllm.general_plugins` of
this project, which has to be installed there. `Sender` is the trainer's side. Both derive from vLLM's NCCL
backend, so handshake and order are the same, and the tests on a CPU run through them.
"""

from __future__ import annotations

import datetime
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor
from torch.distributed import PrefixStore, TCPStore
from vllm.distributed.weight_transfer.base import WeightTransferEngine, WeightTransferInitInfo
from vllm.distributed.weight_transfer.nccl_engine import (
    NCCLTrainerInitInfo,
    NCCLTrainerWeightTransferEngine,
    NCCLWeightTransferUpdateInfo,
)
from vllm.model_executor.model_loader.reload import finalize_layerwise_reload, initialize_layerwise_reload

from components.language.engines.vllm.plugin import GLOO as NAME


@dataclass(kw_only=True)
class GlooInitInfo(WeightTransferInitInfo):
    """Where the group meets, and which ranks are this server's.

    `transport` is no option: an NCCL server refuses it as unknown, and this backend refuses a message of an
    NCCL trainer, which has none. Otherwise each would wait for the other.
    """

    master_address: str
    master_port: int
    rank_offset: int
    world_size: int
    timeout_seconds: float
    transport: str


@dataclass
class GlooTrainerInitInfo(NCCLTrainerInitInfo):
    """As for NCCL, without packing. `timeout_seconds` bounds the wait for the others, and each weight."""

    backend: ClassVar[str] = NAME

    timeout_seconds: float = 600.0


def join(
    address: str,
    port: int,
    rank: int,
    world_size: int,
    seconds: float,
    still: Callable[[], None] = lambda: None,
) -> Any:
    """The group of this rank, in which rank 0 is the trainer; other groups of the process stay as they are.

    Args:
        address: where the trainer waits, with `port`.
        rank: of this process; 0 is the trainer.
        world_size: trainer and workers together.
        seconds: longest wait, and timeout of each transfer.
        still: called again and again while the trainer waits; what it raises ends the wait.

    Raises:
        torch.distributed.DistError: the others did not come in `seconds`.
    """
    timeout = datetime.timedelta(seconds=seconds)
    store = TCPStore(address, port, world_size, rank == 0, timeout, wait_for_workers=False)
    store.set(f"here {rank}", "yes")
    end = time.monotonic() + seconds
    if rank == 0:
        everyone = [f"here {other}" for other in range(world_size)]
        while not store.check(everyone) and time.monotonic() < end:
            still()
            time.sleep(0.05)
    return torch.distributed.ProcessGroupGloo(PrefixStore(NAME, store), rank, world_size, timeout)


class GlooTransferEngine(WeightTransferEngine[GlooInitInfo, NCCLWeightTransferUpdateInfo]):
    """The server's side; see vLLM's `WeightTransferEngine`."""

    init_info_cls = GlooInitInfo
    update_info_cls = NCCLWeightTransferUpdateInfo

    def __init__(self, *parts: Any) -> None:
        super().__init__(*parts)
        self._group: Any = None

    def init_transfer_engine(self, init_info: GlooInitInfo) -> None:
        """Join the trainer's group; an earlier group is left."""
        parallel = self.parallel_config
        rank = parallel.data_parallel_index * parallel.world_size + parallel.rank
        self._group = join(
            init_info.master_address,
            init_info.master_port,
            rank + init_info.rank_offset,
            init_info.world_size,
            init_info.timeout_seconds,
        )

    def start_weight_update(self) -> None:
        """Prepare the layers for weights in the names and shapes of a checkpoint."""
        initialize_layerwise_reload(self.model)

    def finish_weight_update(self) -> None:
        """Convert what arrived to the layers' own form."""
        finalize_layerwise_reload(self.model, self.model_config)

    def update_weights(self, update_info: dict[str, Any]) -> None:
        """Receive all weights; vLLM's own would then wait for an accelerator, which a CPU does not have."""
        self.receive_weights(self.parse_update_info(update_info))

    def receive_weights(self, update_info: NCCLWeightTransferUpdateInfo) -> None:
        """Receive the weights in their order, and load each."""
        if self._group is None:
            raise RuntimeError("weights were announced before the trainer's group was joined")
        model: Any = self.model
        for name, dtype, shape in zip(
            update_info.names, update_info.dtype_names, update_info.shapes, strict=True
        ):
            weight = torch.empty(shape, dtype=getattr(torch, dtype))
            self._group.broadcast(weight, 0).wait()
            model.load_weights([(name, weight.to(self.device))])

    def shutdown(self) -> None:
        """Leave the group."""
        self._group = None


class GlooTrainer(NCCLTrainerWeightTransferEngine):
    """The trainer's side: vLLM's own for NCCL, with another group and without packing."""

    init_info_cls = GlooTrainerInitInfo

    @classmethod
    def trainer_init(cls, init_info: NCCLTrainerInitInfo, *, client: Any, source: Any = None) -> GlooTrainer:
        """Join the group while the servers do."""
        assert isinstance(init_info, GlooTrainerInitInfo)
        engine = cls(client=client, source=source)
        meeting = {
            "master_address": init_info.master_address,
            "master_port": init_info.master_port,
            "world_size": init_info.world_size,
            "timeout_seconds": init_info.timeout_seconds,
        }
        pool = ThreadPoolExecutor(1)
        try:
            told = pool.submit(
                client.init_weight_transfer_engine, {**meeting, "rank_offset": 1, "transport": NAME}
            )
            engine._gloo = join(
                init_info.master_address,
                init_info.master_port,
                0,
                init_info.world_size,
                init_info.timeout_seconds,
                still=lambda: told.result() if told.done() else None,
            )
            told.result()
        finally:
            pool.shutdown(wait=False)
        return engine

    _gloo: Any

    def _broadcast(self, source: Any, meta: Any) -> None:
        pairs: Iterator[tuple[str, Tensor]] = self._checked_iter(source, meta)
        for _, weight in pairs:
            self._gloo.broadcast(weight.cpu().contiguous(), 0).wait()
