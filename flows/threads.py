"""How many torch threads a part of a stage uses: training gains from two, token-by-token decoding does not."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch

from components.config import Config


@contextmanager
def training(config: Config) -> Iterator[None]:
    """`config.threads` threads."""
    with _threads(config.threads):
        yield


@contextmanager
def decoding() -> Iterator[None]:
    """One thread."""
    with _threads(1):
        yield


@contextmanager
def _threads(count: int) -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)
