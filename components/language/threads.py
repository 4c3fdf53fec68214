"""How a part of a stage computes: training gains from two torch threads, token-by-token decoding does not;
subnormals are zero.

The softmax of a trained model is full of numbers below 1e-38, and a CPU takes many times longer over each:
training was half as fast. The setting belongs to the thread and those that it starts, so it is taken back at
the end.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch

from components.config import Config


@contextmanager
def training(config: Config) -> Iterator[None]:
    """`config.threads` threads."""
    with threads(config.threads):
        yield


@contextmanager
def decoding() -> Iterator[None]:
    """One thread."""
    with threads(1):
        yield


@contextmanager
def threads(count: int) -> Iterator[None]:
    """`count` threads."""
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    torch.set_flush_denormal(True)
    try:
        yield
    finally:
        torch.set_flush_denormal(False)
        torch.set_num_threads(before)
