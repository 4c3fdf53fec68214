"""The number of threads and the treatment of subnormals are restored at the end of a block."""

from __future__ import annotations

import pytest
import torch

from components.config import load_config
from components.language.threads import decoding, training

TINY = torch.tensor([1e-38])


@pytest.mark.parametrize(
    ("context", "overrides", "threads"),
    [
        (training, ["threads=2"], 2),
        (decoding, ["threads=2"], 1),
        (decoding, ["threads=2", "backbone.path=models/a"], 2),
        (decoding, ["threads=2", "experience_model.path=models/a"], 2),
    ],
)
def test_threads_and_subnormals_are_restored(context, overrides, threads):
    before = torch.get_num_threads()
    with context(load_config(None, overrides)):
        assert torch.get_num_threads() == threads
        assert (TINY * 0.1).item() == 0
    assert torch.get_num_threads() == before
    assert (TINY * 0.1).item() > 0
