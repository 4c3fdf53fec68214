"""The files of a model directory that hold its weights: which ones are used, whether they are whole.

If there is a `model.safetensors`, transformers loads it and ignores shards next to it; and it follows an
adapter to its base model. Here a directory that could be read in two ways is refused. Only headers are read.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from safetensors import SafetensorError, safe_open

from components.errors import DataError
from components.files import read_text
from components.language.checkpoint_files.weight_checks import quantised

SINGLE = "model.safetensors"
INDEX = "model.safetensors.index.json"
NO_WEIGHTS = "Run dvc pull, make them with dreamgym pretrain, or put a model's safetensors there."
DTYPES = ("F64", "F32", "F16", "BF16")
"""Allowed types of weights; masks and positions stored with them may be integers."""
LARGEST_SETTINGS = 256 * 2**20
"""Most bytes of a model's JSON file or chat template: a tokenizer of 260,000 tokens has 34 million."""


@dataclass(frozen=True)
class StoredWeights:
    """The tensors of a checkpoint on disk: their shapes by name, and the size of their files in bytes."""

    files: tuple[Path, ...]
    shapes: dict[str, tuple[int, ...]]
    size: int

    @property
    def count(self) -> int:
        """How many numbers all tensors have together."""
        return sum(math.prod(shape) for shape in self.shapes.values())


def stored_weights(directory: Path) -> StoredWeights:
    """The weights in `directory`, by the headers of its files.

    Raises:
        DataError: there are no weights, two sets of them, or an adapter; a shard is missing; or a file is cut
            off or damaged.
    """
    _refuse_large_settings(directory)
    _refuse_adapter(directory)
    index = directory / INDEX
    if index.is_file():
        return _read_shards(directory, _shards_by_tensor(index))
    single = directory / SINGLE
    if single.is_file():
        return _read_headers([single])
    raise _no_weights(directory)


def _refuse_large_settings(directory: Path) -> None:
    """Raise DataError if a settings file is larger than any that a model has."""
    patterns = ("*.json", "*.jinja", "*.model")
    for file in sorted(path for pattern in patterns for path in directory.glob(pattern)):
        if (size := file.stat().st_size) > LARGEST_SETTINGS:
            raise DataError(
                f"{file} has {size:,} bytes.",
                f"Expected at most {LARGEST_SETTINGS:,}: it is read whole.",
                f"Move it away, if it is not the model's: mv {file} {file}.unused",
            )


def _refuse_adapter(directory: Path) -> None:
    """Raise DataError if `directory` holds the files of an adapter."""
    adapter_files = sorted(
        path.name for path in directory.glob("adapter_*") if path.suffix in (".json", ".safetensors", ".bin")
    )
    if not adapter_files:
        return
    merge = (
        "Merge it into its base model (peft: merge_and_unload, save_pretrained) and name the result's "
        "directory"
    )
    if (directory / SINGLE).is_file() or (directory / INDEX).is_file():
        other = directory.with_name(f"{directory.name}-adapter")
        raise DataError(
            f"{directory} holds a whole model and an adapter ({', '.join(adapter_files)}).",
            "Expected one of the two: transformers would load the base model that the adapter names, "
            "and apply it.",
            f"To use the whole model, type mkdir {other} && mv {directory}/adapter_* {other}. {merge}.",
        )
    raise DataError(
        f"{directory} holds an adapter without its base model ({', '.join(adapter_files)}).",
        "Expected a whole model.",
        f"{merge}.",
    )


def _no_weights(directory: Path) -> DataError:
    """The error for a directory without a usable set of weights."""
    shards = sorted(path.name for path in directory.glob("*.safetensors"))
    if SINGLE in shards or INDEX in {path.name for path in directory.glob(INDEX)}:
        path = directory / (SINGLE if SINGLE in shards else INDEX)
        return DataError(
            f"{path} is {'a link to a file that is not there' if path.is_symlink() else 'no file'}.",
            "Expected a whole safetensors file.",
            "Download or copy it again, with the file that it links to.",
        )
    if shards:
        return DataError(
            f"{directory} holds {', '.join(shards[:3])}, but neither {SINGLE} nor {INDEX}.",
            f"Expected one file {SINGLE}, or shards with their index.",
            f"Download {INDEX} of that model, too.",
        )
    pickled = sorted(
        file.name for pattern in ("*.bin", "*.pt", "*.pth", "*.ckpt") for file in directory.glob(pattern)
    )
    note = f" in safetensors ({', '.join(pickled)} cannot be used; convert it first)" if pickled else ""
    return DataError(f"{directory} holds no weights{note}.", "Expected *.safetensors.", NO_WEIGHTS)


def _shards_by_tensor(index: Path) -> dict[str, str]:
    """Tensor name -> the file that the index names for it.

    Raises:
        DataError: the index cannot be read, or names something else than safetensors files next to it.
    """
    try:
        weight_map = json.loads(read_text(index))["weight_map"]
        shards = {str(tensor): weight_map[tensor] for tensor in weight_map}
    except (ValueError, KeyError, TypeError) as error:
        raise DataError(
            f"{index} cannot be read: {error!r}.",
            'Expected {"weight_map": {tensor: file, ...}}.',
            "Download it again.",
        ) from None
    bad_names = [
        file
        for file in shards.values()
        if not isinstance(file, str) or Path(file).name != file or not file.endswith(".safetensors")
    ]
    if bad_names or not shards:
        raise DataError(
            f"{index} names {bad_names[0]!r} as a file of weights."
            if bad_names
            else f"{index} names no file.",
            "Expected names of safetensors files beside it.",
            "Download it again.",
        )
    return shards


def _read_shards(directory: Path, shards_by_tensor: dict[str, str]) -> StoredWeights:
    """The weights in the shards of an index.

    Raises:
        DataError: there is a second set of weights, a shard is missing, or shards lack tensors of the index.
    """
    shards = sorted(set(shards_by_tensor.values()))
    missing_shards = [name for name in shards if not (directory / name).is_file()]
    if (directory / SINGLE).is_file() and SINGLE not in shards:
        raise _two_sets(directory, len(shards), len(missing_shards))
    if missing_shards:
        more = " ..." if len(missing_shards) > 3 else "."
        raise DataError(
            f"{directory} lacks {len(missing_shards)} of the {len(shards)} shards that {INDEX} names: "
            f"{', '.join(missing_shards[:3])}{more}",
            "Expected all of them.",
            "Download the missing files again.",
        )
    weights = _read_headers([directory / name for name in shards])
    missing_tensors = sorted(set(shards_by_tensor) - set(weights.shapes))
    if missing_tensors:
        raise DataError(
            f"The shards in {directory} lack {len(missing_tensors)} of the tensors that {INDEX} names, "
            f"{missing_tensors[0]} among them.",
            "Expected shards and index of one model.",
            "Download all of them again.",
        )
    return weights


def _two_sets(directory: Path, shard_count: int, missing_count: int) -> DataError:
    """The error for a directory with a single file of weights and shards."""
    single = directory / SINGLE
    index = directory / INDEX
    missing = f" ({missing_count} of them are missing)." if missing_count else "."
    return DataError(
        f"{directory} holds two sets of weights: {SINGLE}, and {shard_count} shards that {INDEX} "
        f"names{missing}",
        f"Expected one: transformers would load {SINGLE} and not look at the shards.",
        f"To use the shards, type mv {single} {single}.unused; to use {SINGLE}, type mv {index} "
        f"{index}.unused",
    )


def _read_headers(files: Sequence[Path]) -> StoredWeights:
    """The tensors of `files`, by their headers.

    Raises:
        DataError: a file is damaged or quantised, or a tensor is in two files.
    """
    shapes: dict[str, tuple[int, ...]] = {}
    for file in files:
        file_shapes = _read_header(file)
        if duplicates := sorted(set(file_shapes) & set(shapes)):
            raise DataError(
                f"{file} holds {duplicates[0]}, which another shard holds too.",
                "Expected each tensor once.",
                "Download the shards again.",
            )
        shapes |= file_shapes
    return StoredWeights(tuple(files), shapes, sum(file.stat().st_size for file in files))


def _read_header(file: Path) -> dict[str, tuple[int, ...]]:
    """The shapes of the tensors in one file."""
    size = file.stat().st_size
    try:
        with safe_open(str(file), framework="pt") as opened:
            tensor_names = opened.keys()  # a list: safe_open gives no mapping
            slices = {name: opened.get_slice(name) for name in tensor_names}
            shapes = {name: tuple(tensor.get_shape()) for name, tensor in slices.items()}
            dtypes = {name: tensor.get_dtype() for name, tensor in slices.items() if name.endswith(".weight")}
    except (SafetensorError, OSError, ValueError) as error:
        raise DataError(
            f"{file} cannot be loaded: it has {size:,} bytes and is cut off or no safetensors file "
            f"({error}).",
            "Expected a whole safetensors file.",
            "Download or copy it again, or run dvc pull.",
        ) from error
    for name, dtype in dtypes.items():
        if dtype not in DTYPES:
            raise quantised(file.parent, f"{name} is stored as {dtype}")
    return shapes
