"""LoRA adapters (Hu et al. 2021, by peft): add them, merge them into the weights, find the model inside."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any

import torch
from peft import LoraConfig as PeftLoraConfig
from peft import PeftModel, get_peft_model
from transformers import PreTrainedModel
from transformers.pytorch_utils import Conv1D

from components.config import LoraConfig
from components.errors import ConfigError
from components.language.torch_seeds import torch_seed


def add_lora(
    model: PreTrainedModel, config: LoraConfig, *, added: Sequence[int] = (), seed: int = 0
) -> PreTrainedModel | PeftModel:
    """`model` with trainable low-rank adapters and all other weights frozen; with rank 0 `model` itself.

    Args:
        model: the model to adapt.
        config: rank, alpha, and the names of the modules to adapt.
        added: ids of markers that the backbone has never seen (`Vocabulary.added`). Their rows of the
            embeddings are trained too: a row that is random and frozen carries no meaning.
        seed: of the adapters' first weights. The global random state does not change.

    Raises:
        ConfigError: no module of the model has a name from `config.targets`.
    """
    if config.rank == 0:
        return model
    alpha: Any = config.alpha  # declared int by peft, used as a factor
    targets = config.targets if isinstance(config.targets, str) else list(config.targets)
    settings = PeftLoraConfig(
        r=config.rank,
        lora_alpha=alpha,
        target_modules=targets,
        task_type="CAUSAL_LM",
        fan_in_fan_out=any(isinstance(module, Conv1D) for module in model.modules()),
        trainable_token_indices=_trainable_rows(model, added),
    )
    try:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(torch_seed(seed))
            return get_peft_model(model, settings)
    except ValueError as error:
        raise ConfigError(
            f"lora.targets {config.targets}: {error}",
            next_step=f"Name some of: {', '.join(_linear_layer_names(model))}; or write all-linear.",
        ) from error


def _linear_layer_names(model: PreTrainedModel) -> list[str]:
    """The last parts of the names of all linear layers, sorted."""
    return sorted(
        {
            name.rsplit(".", 1)[-1]
            for name, module in model.named_modules()
            if isinstance(module, torch.nn.Linear | Conv1D)
        }
    )


def _trainable_rows(model: PreTrainedModel, added: Sequence[int]) -> dict[str, list[int]] | None:
    """The setting of peft that trains the rows `added` of the embeddings, and of an untied output head."""
    if not added:
        return None
    layers: list[Any] = [model.get_input_embeddings()]
    head: Any = model.get_output_embeddings()
    if head is not None and head.weight is not layers[0].weight:
        layers.append(head)
    return {
        name: list(added)
        for name, module in model.named_modules()
        if any(module is layer for layer in layers)
    }


def merge_lora(model: PreTrainedModel | PeftModel) -> PreTrainedModel:
    """The plain model with its adapters merged into the weights; a model without adapters as it is."""
    if isinstance(model, PeftModel):
        merged: Any = model.merge_and_unload()
        return merged
    return model


def merged_copy(model: PreTrainedModel | PeftModel) -> PreTrainedModel:
    """`merge_lora` of a copy, so that training can continue with the adapters.

    A model without adapters is returned itself, not copied.
    """
    return merge_lora(copy.deepcopy(model)) if isinstance(model, PeftModel) else model


def without_adapters(model: PreTrainedModel | PeftModel) -> PreTrainedModel:
    """The transformers model inside `model`; its layers still compute with the adapters."""
    if isinstance(model, PeftModel):
        inner: Any = model.get_base_model()
        return inner
    return model
