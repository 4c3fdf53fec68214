"""The least memory of a GPU that a run's models take, by arithmetic, before anything is loaded.

Counted are weights, gradients, the moments of AdamW, samplers, and vLLM's caches. Activations come on top, so
a run that fits by this count may still be too large; one that does not fit cannot run.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch

from components.config import Config
from components.errors import ConfigError
from components.language.compute import Compute
from components.language.engines.open_engine import choose_engine
from components.language.training import parallel
from components.language.training.sharding import is_requested

BYTES = {"fp32": 4, "bf16": 2}
FULL_TRAINING_BYTES = 16
"""Of a trained weight: itself, its gradient and two moments, all fp32."""
GB = 1_000_000_000


@dataclass(frozen=True)
class GpuMemory:
    """Bytes by purpose, at the stage that takes the most."""

    parts: dict[str, int]

    @property
    def total(self) -> int:
        """All bytes."""
        return sum(self.parts.values())

    @property
    def words(self) -> str:
        """The parts for people, such as `policy 3.1 GB`."""
        return ", ".join(f"{name} {size / GB:.1f} GB" for name, size in self.parts.items())


def least_gpu_memory(config: Config, compute: Compute, policy: int, experience: int) -> GpuMemory:
    """What RL in the dream or the fine-tuning of the experience model takes, whichever is more.

    Where a launch divides weights among its processes, this is what each takes of its own GPU.

    Args:
        policy: weights of the policy's model.
        experience: weights of the experience model.
    """
    fine_tuning = {"fine-tuning": _training_bytes(config, compute, experience)}
    reinforcement = {
        "policy in training": _training_bytes(config, compute, policy),
        "policy in generation": _sampler_bytes(config, compute, policy, trained=True),
        "experience model": _sampler_bytes(config, compute, experience, trained=False),
    }
    return max((GpuMemory(parts) for parts in (fine_tuning, reinforcement)), key=lambda memory: memory.total)


def require_gpu_memory(config: Config, compute: Compute, policy: int, experience: int) -> None:
    """Raise ConfigError if a run's models cannot fit into the memory of its GPU; see `least_gpu_memory`."""
    if compute.device != "cuda":
        return
    available = torch.cuda.get_device_properties(0).total_memory
    needed = least_gpu_memory(config, compute, policy, experience)
    if needed.total > available:
        raise ConfigError(
            f"The run takes at least {needed.total / GB:.1f} GB of GPU memory ({needed.words}), and the GPU "
            f"has {available / GB:.1f} GB.",
            "Expected a GPU with more memory than that: activations come on top.",
            "Set lora.rank=16, lower vllm.cache_gb, or take a smaller model (backbone.path).",
        )


def _training_bytes(config: Config, compute: Compute, weights: int) -> int:
    """Weights, gradients and moments. With adapters the frozen weights alone: adapters are small."""
    whole = weights * (BYTES[compute.precision] if config.lora.rank else FULL_TRAINING_BYTES)
    if not is_requested():
        return whole
    rounded = 0 if config.lora.rank or compute.precision == "fp32" else weights * BYTES["bf16"]
    return math.ceil(whole / parallel.size()) + rounded  # a pass keeps its bf16 copies whole


def _sampler_bytes(config: Config, compute: Compute, weights: int, *, trained: bool) -> int:
    """What generation holds besides the trained model: a copy in its precision, and vLLM's cache."""
    name, _ = choose_engine(weights, compute)
    if name == "vllm-server":
        return 0
    if name == "vllm":
        return weights * BYTES[compute.precision] + round(compute.vllm.cache_gb * GB)
    shares_weights = trained and (compute.precision == "fp32" or config.lora.rank > 0)
    copied = 0 if shares_weights else weights * BYTES[compute.precision]
    if trained and is_requested():  # the whole model beside the part that is trained
        return copied + weights * BYTES[compute.precision if config.lora.rank else "fp32"]
    return copied
