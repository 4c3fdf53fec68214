"""Device, precision and gradient checkpointing of a run's models.

In bf16 the trained weights stay fp32; the frozen ones under adapters are bf16. Only the matrix products of a
training pass are rounded (autocast), and decoding uses a copy with bf16 weights. Buffers keep their
precision: rotary frequencies in bf16 would be wrong by whole turns after some hundred tokens. The default is
fp32 on a CPU, which is repeatable to the bit.
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

from components.config import Config, EngineName, Precision, VllmConfig
from components.errors import ConfigError
from components.language.adapters import without_adapters
from components.language.engines.vllm.library import require_vllm
from components.language.transformers_setup import attention_of


@dataclass(frozen=True)
class Compute:
    """Where and how one run's models compute: device, arithmetic, engine; without arguments the default."""

    device: str = "cpu"
    precision: Precision = "fp32"
    gradient_checkpointing: bool = False
    engine: EngineName = "kept-cache"
    vllm: VllmConfig = VllmConfig()

    def forward(self) -> AbstractContextManager[Any]:
        """The context of a forward pass in training: autocast in bf16, nothing in fp32."""
        return (
            torch.autocast(self.device, dtype=torch.bfloat16) if self.precision == "bf16" else nullcontext()
        )

    def for_decoding(self, model: Any) -> Any:
        """`model` itself in fp32; in bf16 a converted copy of its current weights.

        Adapters stay adapters: merged into bf16 weights, a small update would be rounded away. Frozen weights
        that are bf16 already are shared, not copied.
        """
        if self.precision != "bf16" or all(weight.dtype == torch.bfloat16 for weight in model.parameters()):
            return model
        frozen = (w for w in model.parameters() if not w.requires_grad and w.dtype == torch.bfloat16)
        return in_bf16(copy.deepcopy(model, {id(weight): weight for weight in frozen}))

    @property
    def frozen(self) -> torch.dtype | None:
        """Type of the weights under trained adapters; None: as they are."""
        return torch.bfloat16 if self.precision == "bf16" else None

    @contextmanager
    def training(self, model: Any) -> Iterator[None]:
        """Training mode within the block, with gradient checkpointing if configured.

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
    """What `config` asks for on this machine.

    `device: auto` is cuda if there is a CUDA device; `precision: auto` is bf16 where the hardware multiplies
    bf16 matrices.

    Raises:
        ConfigError: there is no such device, it does not compute in bf16, or vLLM is asked for and missing.
    """
    has_cuda = torch.cuda.is_available()
    if config.device == "cuda" and not has_cuda:
        raise ConfigError(
            f"device is cuda, and torch {torch.__version__} finds no CUDA device here.",
            "Expected an NVIDIA GPU, its driver, and a torch that was built for CUDA.",
            "Set device=auto or device=cpu; on a machine with a GPU install such a torch (`nvidia-smi` and "
            "pytorch.org tell which).",
        )
    device = "cuda" if has_cuda and config.device != "cpu" else "cpu"
    precision = config.precision
    if precision == "auto":
        precision = "bf16" if has_bf16(device) else "fp32"
    if precision == "bf16" and not has_bf16(device):
        raise ConfigError(
            f"precision is bf16, and this machine's {device} does not multiply bf16 matrices in hardware.",
            "Expected a GPU of compute capability 8.0 or later, or a CPU with AMX or AVX512-BF16: elsewhere "
            "it is slower than fp32.",
            "Set precision=fp32.",
        )
    if config.engine == "vllm":
        require_vllm()
    return Compute(device, precision, config.backbone.gradient_checkpointing, config.engine, config.vllm)


def has_bf16(device: str) -> bool:
    """True if the hardware of `device` multiplies bf16 matrices."""
    if device == "cuda":
        return torch.cuda.is_bf16_supported(including_emulation=False)
    capabilities = torch.cpu.get_capabilities()
    return any(capabilities.get(name) for name in ("amx_bf16", "avx512_bf16", "sve_bf16", "bf16"))


def describe(compute: Compute) -> str:
    """Device and precision in words, with the name and memory of a GPU."""
    if compute.device != "cuda":
        return f"cpu, {compute.precision}"
    memory = torch.cuda.get_device_properties(0).total_memory
    return f"cuda ({torch.cuda.get_device_name(0)}, {memory / 1e9:.0f} GB), {compute.precision}"


def in_bf16(model: Any) -> Any:
    """`model` with its weights converted to bf16 in place; buffers do not change."""
    for weight in model.parameters():
        weight.data = weight.data.to(torch.bfloat16)
    return model


@contextmanager
def _checkpointed(model: PreTrainedModel) -> Iterator[None]:
    """Gradient checkpointing within the block: a layer stores only its input and is computed twice.

    Raises:
        ConfigError: the architecture has none.
    """
    settings: dict[str, Any] = {"use_reentrant": False, "context_fn": partial(_same_attention, model)}
    try:
        model._set_gradient_checkpointing(True, partial(checkpoint, **settings))
    except ValueError as error:
        raise ConfigError(
            f"The architecture {model.config.model_type} has no gradient checkpointing.",
            next_step="Set backbone.gradient_checkpointing=false.",
        ) from error
    try:
        yield
    finally:
        model._set_gradient_checkpointing(False)


def _same_attention(
    model: PreTrainedModel,
) -> tuple[AbstractContextManager[None], AbstractContextManager[None]]:
    """The contexts of a layer's first and second computation.

    The second one happens in the backward pass, after `attention_of` has ended, so it sets the attention
    function again.
    """
    return nullcontext(), attention_of(model, model.config._attn_implementation)
