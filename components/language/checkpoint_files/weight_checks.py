"""Checks for weights that would give wrong numbers without an error.

transformers loads NaN and infinite values, quantised files, and files with tensors that no layer reads. A
model with one NaN answers NaN. A model with fewer blocks than its files is another model.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from components.errors import DataError

EXPECTED = "Expected config.json and weights of one model, in full."
LOAD_BOTH_AGAIN = "Load config.json and weights from the same place again."
SHOWN_NAMES = 3
"""Most names that a message lists."""
_INDEX = re.compile(r"\.\d+(?=\.)")
_ADAPTER = re.compile(r"\.(?:lora_[A-Za-z_]+|base_layer|modules_to_save)\.")


def list_names(names: Sequence[str]) -> str:
    """The first `SHOWN_NAMES` of `names`, and how many more there are, for messages."""
    rest = f" and {len(names) - SHOWN_NAMES} more" if len(names) > SHOWN_NAMES else ""
    return ", ".join(names[:SHOWN_NAMES]) + rest


def refuse_quantised(path: Path | str, config: Any) -> None:
    """Raise DataError if `config` says that the weights in `path` are quantised: training needs fp32."""
    settings = getattr(config, "quantization_config", None)
    if settings is None:
        return
    method = (
        settings.get("quant_method", "")
        if isinstance(settings, dict)
        else getattr(settings, "quant_method", "")
    )
    raise quantised(path, f"its config.json has quantization_config ({method or 'no method named'})")


def quantised(path: Path | str, reason: str) -> DataError:
    """The error for quantised weights in `path`."""
    return DataError(
        f"The model in {path} is quantised: {reason}.",
        "Expected weights in F32, F16 or BF16, which can be trained.",
        "Name the directory of the model before its quantisation.",
    )


def refuse_other_head(path: Path | str, config: Any, shapes: Mapping[str, tuple[int, ...]]) -> None:
    """Raise DataError if `config` ties the output head to embeddings of another shape."""
    embeddings = next((shape for name, shape in shapes.items() if name.endswith("embed_tokens.weight")), None)
    head = next((shape for name, shape in shapes.items() if name.endswith("lm_head.weight")), embeddings)
    if embeddings and head != embeddings and getattr(config.get_text_config(), "tie_word_embeddings", False):
        raise DataError(
            f"The files in {path} hold embeddings of the shape {embeddings} and lm_head.weight of the "
            f"shape {head}; config.json ties them.",
            EXPECTED,
            LOAD_BOTH_AGAIN,
        )


def refuse_left_out(path: Path | str, left_out: Iterable[str], parameters: Iterable[str]) -> None:
    """Raise DataError if unread tensors belong to further blocks of the model, or to an adapter.

    Args:
        path: where the files are, for messages.
        left_out: names of tensors in the files that the model does not read.
        parameters: names of the model's own weights.
    """
    kinds = {_kind_of(name) for name in parameters}
    names = sorted(name for name in left_out if _ADAPTER.search(name) or _kind_of(name) in kinds)
    if not names:
        return
    has_adapter = any(_ADAPTER.search(name) for name in names)
    raise DataError(
        f"The files in {path} hold weights that the model of their config.json does not read: "
        f"{list_names(names)}.",
        EXPECTED,
        "Merge the adapter (peft: merge_and_unload, save_pretrained)." if has_adapter else LOAD_BOTH_AGAIN,
    )


def _kind_of(name: str) -> str:
    """The name of a weight without its block's number and without the prefix that some files omit."""
    return _INDEX.sub(".N", f".{name}").removeprefix(".model").removeprefix(".transformer").lstrip(".")


def require_finite(model: Any, unread: Sequence[int], path: Path | str) -> None:
    """Raise DataError if a weight of `model` is NaN or infinite.

    Args:
        model: changed in place: see `unread`.
        unread: ids whose rows are never read, or are overwritten later. Their bad values become zeros,
            because NaN times a gradient of zero is NaN.
        path: where the model was read from, for messages.
    """
    layers = [model.get_input_embeddings(), model.get_output_embeddings()]
    row_weights = {id(weight) for layer in layers if layer is not None for weight in layer.parameters()}
    bad_counts: dict[str, int] = {}
    for name, weight in model.named_parameters():
        if id(weight) in row_weights and unread:
            rows = torch.tensor(unread)[torch.tensor(unread) < weight.shape[0]]
            weight.data[rows] = torch.where(torch.isfinite(weight.data[rows]), weight.data[rows], 0.0)
        if count := weight.numel() - int(torch.isfinite(weight.data).sum()):
            bad_counts[name] = count
    if bad_counts:
        name, count = next(iter(bad_counts.items()))
        others = f", and {len(bad_counts) - 1} other tensors have some" if len(bad_counts) > 1 else ""
        raise DataError(
            f"The model in {path} has values that are no finite numbers: {count:,} in {name}{others}.",
            "Expected finite weights.",
            "Load it again. Weights above 65,504 do not fit into float16: store them as bfloat16 or float32.",
        )
