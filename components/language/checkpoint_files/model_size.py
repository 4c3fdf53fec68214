"""How large a model is by its config: against its files, against its checkpoints, and against the memory that
is free.

Nothing is read whole before its size is compared with what the config implies.
"""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import psutil
import torch
from transformers import AutoModelForCausalLM

from components.errors import DataError
from components.language.checkpoint_files.weight_files import StoredWeights

BYTES = 4
"""Of a weight in fp32, as which every model is loaded."""
MOST_TIMES = 2.0
"""Numbers in the files for each weight of the model: tied heads, towers for images and further heads are
stored beside what is used.
"""
ALWAYS_FITS = 200 * 2**20
"""Bytes of a model for which the free memory is not asked."""
CGROUP = Path("/sys/fs/cgroup")


def count_weights(path: Path | str, config: Any) -> int:
    """The weights of the causal language model that `config` describes, by building it without memory for
    them.

    Raises:
        DataError: transformers has no such causal language model, or the config contradicts itself.
    """
    return sum(weight.numel() for weight in empty_model(path, config).parameters())


def empty_model(path: Path | str, config: Any) -> Any:
    """The model that `config`, read from `path`, describes, with shapes and without values. Raises as
    `count_weights`.
    """
    try:
        with torch.device("meta"):
            return AutoModelForCausalLM.from_config(copy.deepcopy(config))
    except Exception as error:  # whatever a config of a stranger makes transformers raise
        found = f"The model in {path} cannot be loaded: {type(error).__name__}: {error}"
        expected = (
            "Expected the config.json of a causal language model that this version of transformers knows."
        )
        raise DataError(found, expected, "Check backbone.path, or load the model again.") from error


def plausible_size(directory: Path, config: Any, stored: StoredWeights) -> int:
    """The weights of the model of `config`.

    Raises:
        DataError: the files in `directory` hold far more than that, or cannot hold all of its blocks.
    """
    blocks = int(getattr(config.get_text_config(), "num_hidden_layers", 0) or 0)
    if blocks > len(stored.shapes):
        found = (
            f"{directory}/config.json describes {blocks:,} blocks; the files lack weights of them: they hold"
        )
        found += f" {len(stored.shapes)} tensors."
        raise DataError(
            found, "Expected config.json and weights of one model.", "Load both from the same place again."
        )
    weights = count_weights(directory, config)
    if stored.count > MOST_TIMES * weights:
        found = (
            f"The files in {directory} hold {stored.count:,} numbers ({gigabytes(stored.size)}); its "
            f"config.json describes {weights:,}."
        )
        expected = f"Expected at most {MOST_TIMES:g} times as many as the model has weights."
        raise DataError(found, expected, "Load config.json and weights from the same place again.")
    return weights


def require_memory(directory: Path, weights: int) -> None:
    """Raise DataError if the model of so many `weights` in fp32 is larger than the memory that is free."""
    needed = BYTES * weights
    if needed <= ALWAYS_FITS:
        return
    free = free_memory()
    if needed > free:
        found = f"The model in {directory} has {weights:,} weights and takes {gigabytes(needed)} in fp32;"
        found += f" {gigabytes(free)} of memory are free."
        next_step = (
            "Take a smaller model (backbone.path), close what else runs, or use a machine with more memory."
        )
        raise DataError(found, "Expected a model that fits into the free memory.", next_step)


def free_memory() -> int:
    """Bytes that this process can still take: of the machine, and of the container's limit if it has one."""
    free = int(psutil.virtual_memory().available)
    try:
        limit = int((CGROUP / "memory.max").read_text())
        fields = dict(line.split() for line in (CGROUP / "memory.stat").read_text().splitlines())
        free = min(free, limit - int(fields["anon"]))
    except (OSError, ValueError, KeyError):
        pass  # no such limit: "max" is no number
    return max(0, free)


def gigabytes(size: float) -> str:
    """Bytes for people."""
    return f"{size / 1e9:.1f} GB" if size >= 1e8 else f"{size / 1e6:.1f} MB"
