"""Where models compute and how precisely: the device, bf16 where the hardware has it, and memory traded for
time in training.

In bf16 the weights that are trained stay fp32: only the matrix products of a training pass are rounded
(autocast), and what decodes is a copy with its weights in bf16. Buffers keep their precision: rotary
frequencies in bf16 would be wrong by whole turns some hundred tokens on. fp32 on a CPU is the default, and
comes back to the bit.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch.utils.checkpoint import checkpoint
from transformers import PreTrainedModel

from components.config import Config, Precision
from components.errors import ConfigError
from components.language.adapters import merge_lora, without_adapters
from components.language.transformers_setup import attention_of


@dataclass(frozen=True)
class Compute:
    """The hardware and arithmetic of one run's models; without arguments that of the default."""

    device: str = "cpu"
    precision: Precision = "fp32"
    gradient_checkpointing: bool = False

    def forward(self) -> AbstractContextManager[Any]:
        """Entered around the forward pass of training."""
        return (
            torch.autocast(self.device, dtype=torch.bfloat16) if self.precision == "bf16" else nullcontext()
        )

    def for_decoding(self, model: Any) -> Any:
        """`model` itself in fp32, in bf16 a copy of it as it is now, its adapters merged."""
        return in_bf16(merge_lora(copy.deepcopy(model))) if self.precision == "bf16" else model

    @contextmanager
    def training(self, model: Any) -> Iterator[None]:
        """Training mode within the block, with gradient checkpointing if that is asked for.

        Raises:
            ConfigError: the architecture has no gradient checkpointing.
        """
        model.train()
        try:
            with _checkpointed(without_adapters(model)) if self.gradient_checkpointing else nullcontext():
                yield
        finally:
            model.eval()


def compute_of(config: Config) -> Compute:
    """What `config` asks for on this machine; `device: auto` is cuda where there is one.

    Raises:
        ConfigError: there is no such device, or it does not compute in bf16.
    """
    found = torch.cuda.is_available()
    if config.device == "cuda" and not found:
        raise ConfigError(
            f"device is cuda, and torch {torch.__version__} finds no CUDA device here.",
            "Expected an NVIDIA GPU, its driver, and a torch that was built for CUDA.",
            "Set device=auto or device=cpu; on a machine with a GPU install such a torch (`nvidia-smi` and "
            "pytorch.org tell which).",
        )
    device = "cuda" if found and config.device != "cpu" else "cpu"
    if config.precision == "bf16" and not has_bf16(device):
        raise ConfigError(
            f"precision is bf16, and this machine's {device} does not multiply bf16 matrices in hardware.",
            "Expected a GPU of compute capability 8.0 or later, or a CPU with AMX or AVX512-BF16: elsewhere "
            "it is slower than fp32.",
            "Set precision=fp32.",
        )
    return Compute(device, config.precision, config.backbone.gradient_checkpointing)


def has_bf16(device: str) -> bool:
    """True if the hardware behind `device` multiplies bf16 matrices itself."""
    if device == "cuda":
        return torch.cuda.is_bf16_supported(including_emulation=False)
    found = torch.cpu.get_capabilities()
    return bool(
        found.get("amx_bf16") or found.get("avx512_bf16") or found.get("sve_bf16") or found.get("bf16")
    )


def describe(compute: Compute) -> str:
    """The hardware by its name, for people."""
    if compute.device != "cuda":
        return f"cpu, {compute.precision}"
    memory = torch.cuda.get_device_properties(0).total_memory
    return f"cuda ({torch.cuda.get_device_name(0)}, {memory / 1e9:.0f} GB), {compute.precision}"


def in_bf16(model: Any) -> Any:
    """`model` with its weights, and nothing else, turned to bf16 in place."""
    for weight in model.parameters():
        weight.data = weight.data.to(torch.bfloat16)
    return model


@contextmanager
def _checkpointed(model: PreTrainedModel) -> Iterator[None]:
    """Each block keeps its input alone and is computed again in the backward pass, with the attention
    function it had.
    """
    settings: dict[str, Any] = {"use_reentrant": False, "context_fn": partial(_same_attention, model)}
    try:
        model._set_gradient_checkpointing(True, partial(checkpoint, **settings))
    except ValueError as error:
        name = model.config.model_type
        found = f"The architecture {name} has no gradient checkpointing."
        raise ConfigError(found, next_step="Set backbone.gradient_checkpointing=false.") from error
    try:
        yield
    finally:
        model._set_gradient_checkpointing(False)


def _same_attention(
    model: PreTrainedModel,
) -> tuple[AbstractContextManager[None], AbstractContextManager[None]]:
    """What a block is computed in at first, and again: by the backward pass `attention_of` has long been
    left.
    """
    return nullcontext(), attention_of(model, model.config._attn_implementation)
