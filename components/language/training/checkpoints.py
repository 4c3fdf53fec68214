"""Checkpoints of training: written beside and renamed, read as data alone, and never used if a byte of them
has changed.
"""

from __future__ import annotations

import os
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from components.errors import TrainingError
from components.files import cannot_write

TIMES_MODEL = 8
"""How often a checkpoint may hold its model: weights, two averages of the optimiser, with DPO two further
copies, and room.
"""
LEAST_LIMIT = 256 * 2**20
"""Bytes for what hangs on no model: the curriculum, curves, and the episodes that RFT keeps."""


def save_checkpoint(path: Path, state: Mapping[str, Any]) -> None:
    """Replace `path` by `state` (plain values and tensors) in one step. Raises DataError if the disk refuses;
    the old one then stays.
    """
    beside = path.with_name(path.name + ".part")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with beside.open("wb") as file:
            torch.save(dict(state), file)
            file.flush()
            os.fsync(file.fileno())
        beside.replace(path)
    except OSError as error:
        beside.unlink(missing_ok=True)
        raise cannot_write(path, error) from error


def checkpoint_limit(weights: int) -> int:
    """The largest checkpoint, in bytes, of the training of a model of so many weights."""
    return LEAST_LIMIT + TIMES_MODEL * 4 * weights


def limit_of(model: nn.Module) -> int:
    """`checkpoint_limit` of `model`."""
    return checkpoint_limit(sum(weight.numel() for weight in model.parameters()))


def read_checkpoint(path: Path, limit: int) -> dict[str, Any]:
    """The state in `path`: plain values and tensors; nothing in it is executed.

    Args:
        limit: bytes of the largest checkpoint of this training (`checkpoint_limit`), on disk and unpacked.

    Raises:
        TrainingError: it is larger, it cannot be read, or its checksums say that it is not what was written.
    """
    try:
        _refuse_large(path, path.stat().st_size, limit)
        with zipfile.ZipFile(path) as archive:
            _refuse_large(path, sum(member.file_size for member in archive.infolist()), limit)
            damaged = archive.testzip()
        if damaged:
            raise zipfile.BadZipFile(f"{damaged} has changed")
        state: dict[str, Any] = torch.load(path, weights_only=True)
    except TrainingError:
        raise
    except Exception as error:
        found = f"The checkpoint {path} cannot be read ({type(error).__name__})."
        raise TrainingError(found, "Expected a file that training saved.", _anew(path)) from error
    return state


def _refuse_large(path: Path, size: int, limit: int) -> None:
    if size > limit:
        found = f"The checkpoint {path} has {size:,} bytes."
        expected = (
            f"Expected at most {limit:,}: {TIMES_MODEL} times the weights of its model and "
            f"{LEAST_LIMIT:,} more."
        )
        raise TrainingError(found, expected, _anew(path))


def check_key(path: Path, state: Mapping[str, Any], key: str) -> None:
    """Raise TrainingError if the `state` in `path` is not of the training that `key` stands for."""
    if not isinstance(state, dict) or state.get("key") != key:
        found = f"The checkpoint {path} is of another training."
        raise TrainingError(found, "Expected the same weights, examples and settings.", _anew(path))


def check_weights(found: Mapping[str, Tensor], expected: Mapping[str, Tensor]) -> None:
    """Raise TrainingError, which names the first difference, if `found` are not weights of a model whose own
    are `expected`.
    """
    shapes = [
        {name: tuple(weight.shape) for name, weight in weights.items()} for weights in (found, expected)
    ]
    for name in sorted({*found, *expected}):
        there, wanted = (known.get(name, "nothing") for known in shapes)
        if there != wanted:
            raise TrainingError(
                f"The checkpoint does not fit the model: it holds {there} for {name}.",
                f"Expected {wanted}.",
                "Delete the stage's .partial directory under .dreamgym/stages to train from the start.",
            )


def _anew(path: Path) -> str:
    return f"Delete {path} to train from the start."
