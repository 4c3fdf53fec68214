"""The number of threads and the treatment of subnormals are restored at the end of a block."""

from __future__ import annotations

import pytest
import torch

from components.config import load_config
from components.language.threads import decoding, training

TINY = torch.tensor([1e-38])


@pytest.mark.parametrize(
    "context, threads", [(lambda: training(load_config(None, ["threads=2"])), 2), (decoding, 1)]
)
def test_threads_and_subnormals_are_restored(context, threads):
    before = torch.get_num_threads()
    with context():
        assert torch.get_num_threads() == threads
        assert (TINY * 0.1).item() == 0
    assert torch.get_num_threads() == before
    assert (TINY * 0.1).item() > 0
