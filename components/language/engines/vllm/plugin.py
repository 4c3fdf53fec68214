"""What this project adds to vLLM: the entry point `vllm.general_plugins`, called in each of its processes."""

from __future__ import annotations

GLOO = "gloo"
"""Name of the backend that sends weights to servers without a GPU."""
_MODULE = "components.language.engines.vllm.gloo_backend"


def register() -> None:
    """Make the backend of `gloo_backend.py` known; its module is imported when it is used."""
    from vllm.distributed.weight_transfer.factory import (
        WeightTransferEngineFactory,
        WeightTransferTrainerFactory,
    )

    if GLOO not in WeightTransferEngineFactory._registry:
        WeightTransferEngineFactory.register_engine(GLOO, _MODULE, "GlooTransferEngine")
        WeightTransferTrainerFactory.register_engine(GLOO, _MODULE, "GlooTrainer")
