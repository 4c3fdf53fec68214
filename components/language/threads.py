"""How many torch threads a part of a stage uses, with subnormal numbers flushed to zero.

Training is faster with two threads. Token-by-token decoding is not, for a model of a few million parameters.
For a pretrained one with many rows it is. The softmax of a trained model contains many numbers below 1e-38,
and a CPU takes many times longer for each: without flushing, training ran at half the speed. Flushing belongs
to the current thread and those that it starts, so it is turned off at the end of the block.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch

from components.config import Config
from components.language.freed_memory import keep_freed_memory


@contextmanager
def training(config: Config) -> Iterator[None]:
    """Use `config.threads` threads within the block; freed memory is kept from then on."""
    keep_freed_memory()
    with threads(config.threads):
        yield


@contextmanager
def decoding(config: Config) -> Iterator[None]:
    """Use one thread within the block, or `config.threads` if a model of the run is a pretrained one."""
    has_pretrained = config.backbone.path or config.experience_model.path
    with threads(config.threads if has_pretrained else 1):
        yield


@contextmanager
def threads(count: int) -> Iterator[None]:
    """Use `count` threads within the block."""
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    torch.set_flush_denormal(True)
    try:
        yield
    finally:
        torch.set_flush_denormal(False)
        torch.set_num_threads(before)
