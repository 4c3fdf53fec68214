"""Speed of a training: tokens a second, and on a GPU its share of the chip's peak, its memory, its use."""

from __future__ import annotations

import math
import time
from typing import Any

import torch

from components.language.adapters import without_adapters
from components.language.output_head import head_rows
from components.language.training import parallel

PEAKS = {
    "B200": 2250e12,
    "H200": 989e12,
    "H100 PCIe": 756e12,
    "H100": 989e12,
    "A100": 312e12,
    "L40S": 362e12,
    "A10G": 70e12,
    "A10": 125e12,
    "L4": 121e12,
    "RTX 4090": 165e12,
}
"""Part of a GPU's name -> bf16 operations per second of dense products, by NVIDIA's data sheets. The first
name that fits counts.
"""
SAMPLE_SECONDS = 1.0
"""Time between two looks at the utilisation."""


def operations_per_token(model: Any, predicted_share: float) -> float:
    """Operations that training one token needs, without attention's scores and recomputed passes.

    Two for each weight of a block in the forward pass, two for the gradient of its input, two for its own
    gradient if it is trained (Kaplan et al. 2020, arXiv 2001.08361, section 2.1). The head works on the
    predicted tokens alone.

    Args:
        model: with or without adapters.
        predicted_share: share of the tokens that are predicted.
    """
    inner: Any = without_adapters(model)
    embeddings = {id(inner.get_input_embeddings().weight)}
    head = inner.get_output_embeddings()
    embeddings |= set() if head is None else {id(head.weight)}
    total = trained = 0
    for weight in model.parameters():
        if id(weight) not in embeddings:
            total += weight.numel()
            trained += weight.numel() if weight.requires_grad else 0
    head_size: int = head_rows(inner) * inner.get_input_embeddings().weight.shape[1]
    is_head_trained = head is not None and head.weight.requires_grad
    return 4 * total + 2 * trained + predicted_share * head_size * (6 if is_head_trained else 4)


def peak_operations(gpu: str) -> float | None:
    """bf16 operations per second of the GPU with this name; None if it is not known."""
    return next((peak for name, peak in PEAKS.items() if name in gpu), None)


class SpeedWatch:
    """Looks at a training's device from its begin to `figures`. On a CPU only tokens are counted.

    Args:
        model: that is trained.
        predicted_share: share of the tokens that are predicted.
    """

    def __init__(self, model: Any, predicted_share: float) -> None:
        device = next(model.parameters()).device
        self._gpu = device if device.type == "cuda" else None
        self._operations = operations_per_token(model, predicted_share)
        self._utilisations: list[int] = []
        self._looked_at = time.monotonic()
        if self._gpu is not None:
            torch.cuda.reset_peak_memory_stats(self._gpu)

    def look(self) -> None:
        """Note the GPU's utilisation, at most once a second; nothing without `nvidia-ml-py`."""
        if self._gpu is None or time.monotonic() - self._looked_at < SAMPLE_SECONDS:
            return
        self._looked_at = time.monotonic()
        try:
            self._utilisations.append(torch.cuda.utilization(self._gpu))
        except (ImportError, RuntimeError):  # the package is missing, or the driver does not tell
            self._utilisations = []

    def figures(self, tokens: int, seconds: float) -> dict[str, float]:
        """`tokens_per_second` of all ranks; on a GPU also `gpu_memory_gb` (the most that tensors took),
        `gpu_mfu` (operations of the tokens over those that the GPUs could do in bf16) and `gpu_utilisation`
        (share of the time in which it computed anything; NaN without a look), as far as they are known.
        """
        rate = tokens / max(seconds, 1e-9)
        figures = {"tokens_per_second": rate}
        if self._gpu is None:
            return figures
        figures["gpu_memory_gb"] = torch.cuda.max_memory_allocated(self._gpu) / 1e9
        peak = peak_operations(torch.cuda.get_device_name(self._gpu))
        if peak is not None:
            figures["gpu_mfu"] = rate * self._operations / (peak * parallel.size())
        looks = len(self._utilisations)
        figures["gpu_utilisation"] = sum(self._utilisations) / looks / 100 if looks else math.nan
        return figures
