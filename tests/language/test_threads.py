"""A stage's way to compute ends with the stage."""

from __future__ import annotations

import pytest
import torch

from components.config import load_config
from components.language.threads import decoding, training

TINY = torch.tensor([1e-38])


@pytest.mark.parametrize(
    "context, threads", [(lambda: training(load_config(None, ["threads=2"])), 2), (decoding, 1)]
)
def test_threads_and_subnormals_are_as_before_afterwards(context, threads):
    before = torch.get_num_threads()
    with context():
        assert torch.get_num_threads() == threads
        assert (TINY * 0.1).item() == 0
    assert torch.get_num_threads() == before
    assert (TINY * 0.1).item() > 0
