"""The size of a model by its config, checked against its files and against the free memory.

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
"""Most numbers in the files for each weight of the model: tied heads, towers for images and further heads may
be stored, too.
"""
ALWAYS_FITS = 200 * 2**20
"""Largest model in bytes for which the free memory is not checked."""
CGROUP = Path("/sys/fs/cgroup")


def count_weights(path: Path | str, config: Any) -> int:
    """The parameter count of the causal language model that `config` describes; needs no memory for them.

    Raises:
        DataError: transformers has no such causal language model, or the config contradicts itself.
    """
    return sum(weight.numel() for weight in empty_model(path, config).parameters())


def empty_model(path: Path | str, config: Any) -> Any:
    """The model that `config`, read from `path`, describes, with shapes but without values.

    Raises:
        DataError: as `count_weights`.
    """
    try:
        with torch.device("meta"):
            return AutoModelForCausalLM.from_config(copy.deepcopy(config))
    except Exception as error:  # transformers may raise any exception on a config that it does not know
        raise DataError(
            f"The model in {path} cannot be loaded: {type(error).__name__}: {error}",
            "Expected the config.json of a causal language model that this version of transformers knows.",
            "Check backbone.path, or load the model again.",
        ) from error


def plausible_size(directory: Path, config: Any, stored: StoredWeights) -> int:
    """The parameter count of the model of `config`, checked against the files in `directory`.

    Raises:
        DataError: the files hold far more numbers than that, or have too few tensors for its blocks.
    """
    blocks = int(getattr(config.get_text_config(), "num_hidden_layers", 0) or 0)
    if blocks > len(stored.shapes):
        raise DataError(
            f"{directory}/config.json describes {blocks:,} blocks; the files lack weights of them: they hold"
            f" {len(stored.shapes)} tensors.",
            "Expected config.json and weights of one model.",
            "Load both from the same place again.",
        )
    weights = count_weights(directory, config)
    if stored.count > MOST_TIMES * weights:
        raise DataError(
            f"The files in {directory} hold {stored.count:,} numbers ({gigabytes(stored.size)}); its "
            f"config.json describes {weights:,}.",
            f"Expected at most {MOST_TIMES:g} times as many as the model has weights.",
            "Load config.json and weights from the same place again.",
        )
    return weights


def require_memory(directory: Path, weights: int) -> None:
    """Raise DataError if a model of `weights` parameters in fp32 is larger than the free memory."""
    needed = BYTES * weights
    if needed <= ALWAYS_FITS:
        return
    free = free_memory()
    if needed > free:
        raise DataError(
            f"The model in {directory} has {weights:,} weights and takes {gigabytes(needed)} in fp32;"
            f" {gigabytes(free)} of memory are free.",
            "Expected a model that fits into the free memory.",
            "Take a smaller model (backbone.path), close other programs, or use a machine with more memory.",
        )


def free_memory() -> int:
    """Bytes that this process can still allocate: of the machine, or within the container's limit."""
    free = int(psutil.virtual_memory().available)
    try:
        limit = int((CGROUP / "memory.max").read_text())
        fields = dict(line.split() for line in (CGROUP / "memory.stat").read_text().splitlines())
        free = min(free, limit - int(fields["anon"]))
    except (OSError, ValueError, KeyError):
        pass  # there is no limit; "max" is not a number
    return max(0, free)


def gigabytes(size: float) -> str:
    """A size in bytes as GB or MB, for people."""
    return f"{size / 1e9:.1f} GB" if size >= 1e8 else f"{size / 1e6:.1f} MB"
