"""What the measurements of `dreamgym bench gpu` share: the device's state, its peak, failures."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable

import torch

from components.errors import DreamGymError
from components.language.compute import Compute

Figures = dict[str, float]
"""Values by name."""


def measure_peak(compute: Compute, size: int = 8192) -> Figures:
    """Operations per second of one large product of matrices: what this device reaches."""
    dtype = torch.bfloat16 if compute.precision == "bf16" else torch.float32
    left, right = (torch.randn(size, size, device=compute.device, dtype=dtype) for _ in range(2))
    for _ in range(2):
        left @ right
    synchronize(compute)
    start, count = time.perf_counter(), 0
    while time.perf_counter() - start < 1.0:
        left @ right
        synchronize(compute)
        count += 1
    return {"matmul_tflops": 2 * size**3 * count / (time.perf_counter() - start) / 1e12}


def synchronize(compute: Compute) -> None:
    """Wait until the device has done what it was asked for."""
    if compute.device == "cuda":
        torch.cuda.synchronize()


def reset_memory(compute: Compute) -> None:
    """Free what an earlier measurement held, and begin to count anew."""
    gc.collect()
    if compute.device == "cuda":
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()


def peak_memory_gb(compute: Compute) -> float:
    """The most memory that tensors took since `reset_memory`, in GB; 0 on a CPU."""
    return torch.cuda.max_memory_allocated() / 1e9 if compute.device == "cuda" else 0.0


def attempt(measure: Callable[[], Figures]) -> tuple[Figures, str]:
    """The figures of one measurement, or why it failed: the others go on."""
    try:
        return measure(), ""
    except DreamGymError as error:
        return {}, str(error)
    except Exception as error:  # a missing package, no memory, a lost device
        return {}, f"{type(error).__name__}: {' '.join(str(error).split()):.300}"
