"""Checkpoints of training: written in one step, read as data only, refused if their content has changed."""

from __future__ import annotations

import os
import zipfile
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from components.errors import TrainingError
from components.files import cannot_write

TIMES_MODEL = 8
"""Largest checkpoint in sizes of its model: weights, two averages of the optimiser, with DPO two further
copies, and a reserve.
"""
LEAST_LIMIT = 256 * 2**20
"""Bytes for what does not grow with the model: the curriculum, curves, and the episodes that RFT keeps."""
RESTART_STAGE = "Delete the stage's .partial directory under .dreamgym/stages to train from the start."


def save_checkpoint(path: Path, state: Mapping[str, Any]) -> None:
    """Replace the file `path` by `state` (plain values and tensors) in one step.

    Raises:
        DataError: the disk refuses; the old file stays.
    """
    temporary = path.with_name(path.name + ".part")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with temporary.open("wb") as file:
            torch.save(dict(state), file)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except OSError as error:
        with suppress(OSError):
            temporary.unlink(missing_ok=True)
        raise cannot_write(path, error) from error


def checkpoint_limit(weights: int, copies: int = 0) -> int:
    """The largest checkpoint, in bytes, for a model of `weights` parameters.

    Args:
        copies: further weights that it may hold: those with which rollouts ahead of the update are played.
    """
    return LEAST_LIMIT + (TIMES_MODEL + copies) * 4 * weights


def model_checkpoint_limit(model: nn.Module, copies: int = 0) -> int:
    """`checkpoint_limit` of `model`."""
    return checkpoint_limit(sum(weight.numel() for weight in model.parameters()), copies)


def read_checkpoint(path: Path, limit: int) -> dict[str, Any]:
    """The state in `path`: plain values, and tensors in main memory. Nothing in the file is executed.

    Args:
        path: a file of `save_checkpoint`.
        limit: largest size in bytes, on disk and unpacked (`checkpoint_limit`).

    Raises:
        TrainingError: it is larger, it cannot be read, or a checksum does not match.
    """
    try:
        _refuse_large(path, path.stat().st_size, limit)
        with zipfile.ZipFile(path) as archive:
            _refuse_large(path, sum(member.file_size for member in archive.infolist()), limit)
            damaged = archive.testzip()
        if damaged:
            raise zipfile.BadZipFile(f"{damaged} has changed")
        state: dict[str, Any] = torch.load(path, map_location="cpu", weights_only=True)
    except TrainingError:
        raise
    except Exception as error:  # torch raises many types on a damaged file
        raise TrainingError(
            f"The checkpoint {path} cannot be read ({type(error).__name__}).",
            "Expected a file that training saved.",
            _how_to_restart(path),
        ) from error
    return state


def _refuse_large(path: Path, size: int, limit: int) -> None:
    """Raise TrainingError if `size` bytes are more than `limit`."""
    if size > limit:
        raise TrainingError(
            f"The checkpoint {path} has {size:,} bytes.",
            f"Expected at most {limit:,}, by the size of its model.",
            _how_to_restart(path),
        )


def check_key(path: Path, state: Mapping[str, Any], key: str) -> None:
    """Raise TrainingError if the `state` in `path` is not of the training run that `key` identifies."""
    if not isinstance(state, dict) or state.get("key") != key:
        raise TrainingError(
            f"The checkpoint {path} is of another training.",
            "Expected the same weights, examples and settings.",
            _how_to_restart(path),
        )


def check_weights(weights: Mapping[str, Tensor], expected: Mapping[str, Tensor]) -> None:
    """Raise TrainingError, naming the first difference, if names or shapes are not as in `expected`."""
    shapes = {name: tuple(weight.shape) for name, weight in weights.items()}
    expected_shapes = {name: tuple(weight.shape) for name, weight in expected.items()}
    for name in sorted({*weights, *expected}):
        shape = shapes.get(name, "nothing")
        expected_shape = expected_shapes.get(name, "nothing")
        if shape != expected_shape:
            raise TrainingError(
                f"The checkpoint does not fit the model: it holds {shape} for {name}.",
                f"Expected {expected_shape}.",
                RESTART_STAGE,
            )


def _how_to_restart(path: Path) -> str:
    return f"Delete {path} to train from the start."
