"""The files of a model directory that hold its weights: which ones count, whether they are whole, and what is
in them.

transformers loads `model.safetensors` wherever there is one and does not look at shards beside it, and it
follows an adapter to its base model. Here a directory that could be read in two ways is refused. Headers
alone are read.
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

SINGLE, INDEX = "model.safetensors", "model.safetensors.index.json"
NO_WEIGHTS = "Run dvc pull, make them with dreamgym pretrain, or put a model's safetensors there."
DTYPES = ("F64", "F32", "F16", "BF16")
"""Of weights; masks and positions beside them may be integers."""
LARGEST_SETTINGS = 256 * 2**20
"""Bytes of a JSON file or chat template of a model: a tokenizer of 260,000 tokens has 34 million."""


@dataclass(frozen=True)
class StoredWeights:
    """The tensors of a checkpoint on disk: `shapes` by name, and the bytes of their files."""

    files: tuple[Path, ...]
    shapes: dict[str, tuple[int, ...]]
    size: int

    @property
    def count(self) -> int:
        """Numbers in all tensors."""
        return sum(math.prod(shape) for shape in self.shapes.values())


def stored_weights(directory: Path) -> StoredWeights:
    """The weights that `directory` holds, by the headers of its files.

    Raises:
        DataError: no weights, two sets of them, an adapter, a shard that is not there, or a file that is cut
            off or damaged.
    """
    _refuse_large_settings(directory)
    _refuse_adapter(directory)
    index, single = directory / INDEX, directory / SINGLE
    if index.is_file():
        return _sharded(directory, _shards_by_tensor(index))
    if single.is_file():
        return _read_headers([single])
    raise _no_weights(directory)


def _refuse_large_settings(directory: Path) -> None:
    for file in sorted(
        path for pattern in ("*.json", "*.jinja", "*.model") for path in directory.glob(pattern)
    ):
        if (size := file.stat().st_size) > LARGEST_SETTINGS:
            expected = f"Expected at most {LARGEST_SETTINGS:,}: it is read whole."
            raise DataError(
                f"{file} has {size:,} bytes.",
                expected,
                f"Move it away, if it is not the model's: mv {file} {file}.unused",
            )


def _refuse_adapter(directory: Path) -> None:
    adapter = sorted(
        path.name for path in directory.glob("adapter_*") if path.suffix in (".json", ".safetensors", ".bin")
    )
    if not adapter:
        return
    merge = (
        "Merge it into its base model (peft: merge_and_unload, save_pretrained) and name the result's "
        "directory"
    )
    if (directory / SINGLE).is_file() or (directory / INDEX).is_file():
        other = directory.with_name(f"{directory.name}-adapter")
        found = f"{directory} holds a whole model and an adapter ({', '.join(adapter)})."
        expected = (
            "Expected one of the two: transformers would load the base model that the adapter names, "
            "and apply it."
        )
        raise DataError(
            found,
            expected,
            f"To use the whole model, type mkdir {other} && mv {directory}/adapter_* {other}. {merge}.",
        )
    raise DataError(
        f"{directory} holds an adapter without its base model ({', '.join(adapter)}).",
        "Expected a whole model.",
        f"{merge}.",
    )


def _no_weights(directory: Path) -> DataError:
    shards = sorted(path.name for path in directory.glob("*.safetensors"))
    if SINGLE in shards or INDEX in {path.name for path in directory.glob(INDEX)}:
        name = SINGLE if SINGLE in shards else INDEX
        found = (
            f"{directory / name} is "
            f"{'a link to a file that is not there' if (directory / name).is_symlink() else 'no file'}."
        )
        return DataError(
            found,
            "Expected a whole safetensors file.",
            "Download or copy it again, with the file that it links to.",
        )
    if shards:
        found = f"{directory} holds {', '.join(shards[:3])}, but neither {SINGLE} nor {INDEX}."
        return DataError(
            found,
            f"Expected one file {SINGLE}, or shards with their index.",
            f"Download {INDEX} of that model, too.",
        )
    pickled = sorted(
        file.name for pattern in ("*.bin", "*.pt", "*.pth", "*.ckpt") for file in directory.glob(pattern)
    )
    said = f" in safetensors ({', '.join(pickled)} cannot be used; convert it first)" if pickled else ""
    return DataError(f"{directory} holds no weights{said}.", "Expected *.safetensors.", NO_WEIGHTS)


def _shards_by_tensor(index: Path) -> dict[str, str]:
    """Tensor -> the file that the index names for it."""
    try:
        shards = json.loads(read_text(index))["weight_map"]
        named = {str(tensor): shards[tensor] for tensor in shards}
    except (ValueError, KeyError, TypeError) as error:
        expected = 'Expected {"weight_map": {tensor: file, ...}}.'
        raise DataError(f"{index} cannot be read: {error!r}.", expected, "Download it again.") from None
    wrong = [
        file
        for file in named.values()
        if not isinstance(file, str) or Path(file).name != file or not file.endswith(".safetensors")
    ]
    if wrong or not named:
        found = f"{index} names {wrong[0]!r} as a file of weights." if wrong else f"{index} names no file."
        raise DataError(found, "Expected names of safetensors files beside it.", "Download it again.")
    return named


def _sharded(directory: Path, named: dict[str, str]) -> StoredWeights:
    shards = sorted(set(named.values()))
    missing = [name for name in shards if not (directory / name).is_file()]
    if (directory / SINGLE).is_file() and SINGLE not in shards:
        single, index = directory / SINGLE, directory / INDEX
        found = (
            f"{directory} holds two sets of weights: {SINGLE}, and {len(shards)} shards that {INDEX} names"
        )
        found += f" ({len(missing)} of them are missing)." if missing else "."
        keep = (
            f"To use the shards, type mv {single} {single}.unused; to use {SINGLE}, type mv {index} "
            f"{index}.unused"
        )
        raise DataError(
            found, f"Expected one: transformers would load {SINGLE} and not look at the shards.", keep
        )
    if missing:
        found = (
            f"{directory} lacks {len(missing)} of the {len(shards)} shards that {INDEX} names: "
            f"{', '.join(missing[:3])}"
        )
        raise DataError(
            found + (" ..." if len(missing) > 3 else "."),
            "Expected all of them.",
            "Download the missing files again.",
        )
    weights = _read_headers([directory / name for name in shards])
    absent = sorted(set(named) - set(weights.shapes))
    if absent:
        found = (
            f"The shards in {directory} lack {len(absent)} of the tensors that {INDEX} names, "
            f"{absent[0]} among them."
        )
        raise DataError(found, "Expected shards and index of one model.", "Download all of them again.")
    return weights


def _read_headers(files: Sequence[Path]) -> StoredWeights:
    shapes: dict[str, tuple[int, ...]] = {}
    for file in files:
        size, stored_as = file.stat().st_size, ""
        try:
            with safe_open(str(file), framework="pt") as opened:
                slices = {name: opened.get_slice(name) for name in opened.keys()}  # noqa: SIM118  (it is no mapping)
                here = {name: tuple(one.get_shape()) for name, one in slices.items()}
                dtypes = {name: one.get_dtype() for name, one in slices.items() if name.endswith(".weight")}
                stored_as = next(
                    (f"{name} is stored as {dtype}" for name, dtype in dtypes.items() if dtype not in DTYPES),
                    "",
                )
        except (SafetensorError, OSError, ValueError) as error:
            found = (
                f"{file} cannot be loaded: it has {size:,} bytes and is cut off or no safetensors file "
                f"({error})."
            )
            raise DataError(
                found, "Expected a whole safetensors file.", "Download or copy it again, or run dvc pull."
            ) from error
        if stored_as:
            raise quantised(file.parent, stored_as)
        if twice := sorted(set(here) & set(shapes)):
            found = f"{file} holds {twice[0]}, which another shard holds too."
            raise DataError(found, "Expected each tensor once.", "Download the shards again.")
        shapes |= here
    return StoredWeights(tuple(files), shapes, sum(file.stat().st_size for file in files))
