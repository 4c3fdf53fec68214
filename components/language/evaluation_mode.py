"""Evaluation mode for the length of a block."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from transformers import PreTrainedModel


@contextmanager
def evaluating(model: PreTrainedModel) -> Iterator[None]:
    """Evaluation mode without gradients within the block; training mode is restored if it was on."""
    was_training = model.training
    if was_training:
        model.eval()
    try:
        with torch.inference_mode():
            yield
    finally:
        if was_training:
            model.train()
