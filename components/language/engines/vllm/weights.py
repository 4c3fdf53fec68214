"""The weights of a torch model as vLLM takes them, and a digest that tells whether they changed."""

from __future__ import annotations

import copy
import hashlib
from collections.abc import Iterator
from typing import Any

from peft import PeftModel
from torch import Tensor

from components.language.adapters import is_adapter_weight, merge_lora, without_adapters
from components.language.compute import Compute
from components.language.engines.vllm.requests import barred_ids


def has_servable_adapters(model: Any) -> bool:
    """True if vLLM can hold the adapters of `model` beside its base.

    It refuses adapters that also train rows of the embeddings (vLLM issue 36501).
    """
    return isinstance(model, PeftModel) and not any(
        "trainable_tokens_delta" in name for name, _ in model.named_parameters()
    )


def merged(model: Any) -> Any:
    """A copy of `model` with its adapters merged; a model without adapters as it is."""
    return merge_lora(copy.deepcopy(model)) if isinstance(model, PeftModel) else model


def base_weights(model: Any) -> Iterator[tuple[str, Tensor]]:
    """Name and value of each weight but those of adapters, under the names of a saved checkpoint.

    A head that shares its weights with the embeddings is listed too. vLLM would otherwise keep the head that
    it had: nothing fails, and every log-probability is wrong.
    """
    inner: Any = without_adapters(model)
    for name, weight in inner.named_parameters():
        if not is_adapter_weight(name):
            yield name.replace(".base_layer.", "."), weight.detach()
    head = inner.get_output_embeddings()
    if head is not None and head.weight is inner.get_input_embeddings().weight:
        name = next(name for name, module in inner.named_modules() if module is head)
        yield f"{name}.weight", head.weight.detach()


def signature_of(model: Any, compute: Compute) -> str:
    """What two models must share to use one host: architecture, adapters' rank, precision and engine."""
    inner = without_adapters(model)
    rank = model.peft_config["default"].r if has_servable_adapters(model) else 0
    config = inner.config.to_json_string(use_diff=False)
    return repr((config, rank, barred_ids(inner), compute))


def weights_digest(model: Any) -> str:
    """A hash of the sum of each weight: equal while the weights stay as they are."""
    sums = [weight.detach().double().sum().item() for weight in model.parameters()]
    return hashlib.sha256(repr(sums).encode()).hexdigest()
