"""Checkpoints of training: written beside and renamed, read as data alone, and never used if a byte of them has changed."""

from __future__ import annotations

import os
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from components.atomic import cannot_write
from components.errors import TrainingError


def save_checkpoint(path: Path, state: Mapping[str, Any]) -> None:
    """Replace `path` by `state` (plain values and tensors) in one step. Raises DataError if the disk refuses; the old one then stays."""
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


def read_checkpoint(path: Path) -> dict[str, Any]:
    """The state in `path`: plain values and tensors; nothing in it is executed.

    Raises:
        TrainingError: it cannot be read, or its checksums say that it is not what was written.
    """
    try:
        with zipfile.ZipFile(path) as archive:
            damaged = archive.testzip()
        if damaged:
            raise zipfile.BadZipFile(f"{damaged} has changed")
        state: dict[str, Any] = torch.load(path, weights_only=True)
    except Exception as error:
        found = f"The checkpoint {path} cannot be read ({type(error).__name__})."
        raise TrainingError(found, "Expected a file that training saved.", _anew(path)) from error
    return state


def check_key(path: Path, state: Mapping[str, Any], key: str) -> None:
    """Raise TrainingError if the `state` in `path` is not of the training that `key` stands for."""
    if not isinstance(state, dict) or state.get("key") != key:
        found = f"The checkpoint {path} is of another training."
        raise TrainingError(found, "Expected the same weights, examples and settings.", _anew(path))


def check_weights(found: Mapping[str, Tensor], expected: Mapping[str, Tensor]) -> None:
    """Raise TrainingError, which names the first difference, if `found` are not weights of a model whose own are `expected`."""
    shapes = [{name: tuple(weight.shape) for name, weight in weights.items()} for weights in (found, expected)]
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
