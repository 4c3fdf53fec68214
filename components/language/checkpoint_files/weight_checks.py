"""Weights that would make wrong numbers without an error: NaN and infinite values, tensors that no layer
reads, quantised files.

transformers loads all of these. A model with one NaN answers NaN, and a model with fewer blocks than its
files is another model.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from components.errors import DataError

EXPECTED = "Expected config.json and weights of one model, in full."
_INDEX = re.compile(r"\.\d+(?=\.)")
_ADAPTER = re.compile(r"\.(?:lora_[A-Za-z_]+|base_layer|modules_to_save)\.")


def refuse_quantised(path: Path | str, config: Any) -> None:
    """Raise DataError if `config` says that the weights in `path` are quantised: both models are trained, in
    fp32.
    """
    settings = getattr(config, "quantization_config", None)
    if settings is None:
        return
    method = (
        settings.get("quant_method", "")
        if isinstance(settings, dict)
        else getattr(settings, "quant_method", "")
    )
    raise quantised(path, f"its config.json has quantization_config ({method or 'no method named'})")


def quantised(path: Path | str, why: str) -> DataError:
    """What to say of quantised weights in `path`."""
    return DataError(
        f"The model in {path} is quantised: {why}.",
        "Expected weights in F32, F16 or BF16, which can be trained.",
        "Name the directory of the model before its quantisation.",
    )


def refuse_other_head(path: Path | str, config: Any, shapes: Mapping[str, tuple[int, ...]]) -> None:
    """Raise DataError if the output head in the files has another shape than the embeddings that `config`
    ties it to.
    """
    embeddings = next((shape for name, shape in shapes.items() if name.endswith("embed_tokens.weight")), None)
    head = next((shape for name, shape in shapes.items() if name.endswith("lm_head.weight")), embeddings)
    if embeddings and head != embeddings and getattr(config.get_text_config(), "tie_word_embeddings", False):
        found = (
            f"The files in {path} hold embeddings of the shape {embeddings} and lm_head.weight of the "
            f"shape {head};"
        )
        found += " config.json ties them."
        raise DataError(found, EXPECTED, "Load config.json and weights from the same place again.")


def refuse_left_out(path: Path | str, left_out: Iterable[str], parameters: Iterable[str]) -> None:
    """Raise DataError if tensors that no layer reads belong to further blocks of the same kind, or to an
    adapter.

    Args:
        left_out: names of tensors in the files that the model does not read.
        parameters: names of the model's own weights.
    """
    kinds = {_kind(name) for name in parameters}
    names = sorted(name for name in left_out if _ADAPTER.search(name) or _kind(name) in kinds)
    if not names:
        return
    shown = ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")
    found = f"The files in {path} hold weights that the model of their config.json does not read: {shown}."
    adapter = any(_ADAPTER.search(name) for name in names)
    cure = (
        "Merge the adapter (peft: merge_and_unload, save_pretrained)."
        if adapter
        else "Load config.json and weights from the same place again."
    )
    raise DataError(found, EXPECTED, cure)


def _kind(name: str) -> str:
    """The name of a weight without the number of its block and without the prefix that some files leave
    out.
    """
    return _INDEX.sub(".N", f".{name}").removeprefix(".model").removeprefix(".transformer").lstrip(".")


def require_finite(model: Any, unread: Sequence[int], path: Path | str) -> None:
    """Raise DataError if a weight of `model` is NaN or infinite.

    Rows of the ids in `unread`, which are never read or are drawn anew, become zeros: times a gradient of
    zero, NaN would still be NaN.
    """
    ends = [model.get_input_embeddings(), model.get_output_embeddings()]
    of_ids = {id(weight) for end in ends if end is not None for weight in end.parameters()}
    wrong: dict[str, int] = {}
    for name, weight in model.named_parameters():
        if id(weight) in of_ids and unread:
            rows = torch.tensor(unread)[torch.tensor(unread) < weight.shape[0]]
            weight.data[rows] = torch.where(torch.isfinite(weight.data[rows]), weight.data[rows], 0.0)
        if count := weight.numel() - int(torch.isfinite(weight.data).sum()):
            wrong[name] = count
    if wrong:
        name, count = next(iter(wrong.items()))
        others = f", and {len(wrong) - 1} other tensors have some" if len(wrong) > 1 else ""
        found = f"The model in {path} has values that are no finite numbers: {count:,} in {name}{others}."
        cure = (
            "Load it again; weights above 65,504 do not fit into float16: store them as bfloat16 or float32."
        )
        raise DataError(found, "Expected finite weights.", cure)
