"""How many torch threads a part of a stage uses, with subnormal numbers flushed to zero.

Training is faster with two threads; token-by-token decoding is not. The softmax of a trained model contains
many numbers below 1e-38, and a CPU takes many times longer for each: without flushing, training ran at half
the speed. Flushing belongs to the current thread and those that it starts, so it is turned off at the end of
the block.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch

from components.config import Config


@contextmanager
def training(config: Config) -> Iterator[None]:
    """Use `config.threads` threads within the block."""
    with threads(config.threads):
        yield


@contextmanager
def decoding() -> Iterator[None]:
    """Use one thread within the block."""
    with threads(1):
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
