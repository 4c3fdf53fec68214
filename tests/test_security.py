"""Files that would run code if they were unpickled: they are refused, and their code is not run (docs/security.md)."""

from __future__ import annotations

import os
import pickle

import pytest
import torch
from builders import VOCABULARY, make_model

from components.errors import DataError, TrainingError
from components.language.backbone import load_backbone, save_model
from components.language.examples import Example, Segment
from components.language.training import supervised_finetune
from components.policy.loop import reached


class Trap:
    """Unpickled it makes a file."""

    def __init__(self, path):
        self.path = str(path)

    def __reduce__(self):
        return os.mkdir, (self.path,)


@pytest.fixture
def trap(tmp_path):
    """The place of the file that must not come into being, and the bytes that would make it."""
    place = tmp_path / "sprung"
    code = pickle.dumps(Trap(place))
    pickle.loads(code)  # noqa: S301
    assert place.is_dir(), "the trap works"
    place.rmdir()
    return place, code


def test_pickled_weights_of_a_backbone_are_refused(trap, tmp_path):
    place, code = trap
    save_model(make_model(), VOCABULARY, tmp_path / "model")
    (tmp_path / "model" / "model.safetensors").unlink()
    (tmp_path / "model" / "pytorch_model.bin").write_bytes(code)
    with pytest.raises(DataError, match="no weights.*safetensors"):
        load_backbone(tmp_path / "model")
    assert not place.exists()


@pytest.mark.parametrize("saved_by_torch", [False, True])
def test_a_checkpoint_that_would_run_code_is_refused(trap, tmp_path, saved_by_torch):
    place, code = trap
    checkpoint = tmp_path / "checkpoint.pt"
    if saved_by_torch:
        torch.save({"key": Trap(place)}, checkpoint)
    else:
        checkpoint.write_bytes(code)
    examples = [Example([Segment([1, 2, 3], [False, True, True])])]
    with pytest.raises(TrainingError, match="cannot be read"):
        supervised_finetune(make_model(), examples, epochs=1, learning_rate=1e-3, batch_tokens=64, seed=0, checkpoint=checkpoint)
    with pytest.raises(TrainingError, match="cannot be read"):
        reached(checkpoint)
    assert not place.exists()
