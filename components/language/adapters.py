"""LoRA adapters (Hu et al. 2021, by peft): add them, save and load them, merge them, find the model inside.

Between the stages adapters stay adapters: every stage trains those of the stage before, on the same frozen
weights. So the frozen weights can be held in bf16, and no small update is rounded away in a merge. Adapters
are merged in fp32, where a policy is exported.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from peft import LoraConfig as PeftLoraConfig
from peft import PeftModel, get_peft_model
from transformers import PreTrainedModel
from transformers.pytorch_utils import Conv1D

from components.config import LoraConfig
from components.errors import ConfigError, DataError
from components.language.torch_seeds import torch_seed

ADAPTER = "adapter"
"""Directory of the adapters below that of their model, in peft's files."""
_SETTINGS = "lora.json"
"""File in it with the config section `lora` that they were made by."""
_BASE = ".."
"""What peft's file names as the base model: no path of this machine."""


def add_lora(
    model: PreTrainedModel | PeftModel,
    config: LoraConfig,
    *,
    added: Sequence[int] = (),
    seed: int = 0,
    frozen: torch.dtype | None = None,
) -> PreTrainedModel | PeftModel:
    """`model` with trainable low-rank adapters and all other weights frozen; with rank 0 without adapters.

    A model that has adapters of this `config` keeps them and goes on with them. Other adapters are merged
    first.

    Args:
        model: the model to adapt.
        config: rank, alpha, and the names of the modules to adapt.
        added: ids of markers that the backbone has never seen (`Vocabulary.added`). Their rows of the
            embeddings are trained too: a row that is random and frozen carries no meaning.
        seed: of new adapters' first weights. The global random state does not change.
        frozen: type of the frozen matrices; None: as they are. Norms and trained weights stay fp32.

    Raises:
        ConfigError: no module of the model has a name from `config.targets`.
    """
    if isinstance(model, PeftModel) and _settings_of(model) == config:
        for name, weight in model.named_parameters():
            weight.requires_grad_(is_adapter_weight(name))
        return _with_frozen(model, frozen)
    plain = merge_lora(model).requires_grad_(True)
    if config.rank == 0:
        return plain
    return _with_frozen(_new_adapters(plain, config, added, seed), frozen)


def _new_adapters(
    model: PreTrainedModel, config: LoraConfig, added: Sequence[int], seed: int
) -> PreTrainedModel | PeftModel:
    """`add_lora` for a model without adapters."""
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
            adapted: Any = get_peft_model(model, settings)
    except ValueError as error:
        raise ConfigError(
            f"lora.targets {config.targets}: {error}",
            next_step=f"Name some of: {', '.join(_linear_layer_names(model))}; or write all-linear.",
        ) from error
    adapted.peft_config["default"].base_model_name_or_path = _BASE
    adapted.dreamgym_lora = config
    return adapted


def _settings_of(model: PeftModel) -> LoraConfig:
    settings: Any = model.dreamgym_lora
    return settings


def is_adapter_weight(name: str) -> bool:
    """True if `name` is that of an adapter's weight, rows of added markers included."""
    return "lora_" in name or "trainable_tokens_delta" in name


def _with_frozen(model: Any, dtype: torch.dtype | None) -> Any:
    """`model` with its frozen matrices in `dtype`. Embeddings of which rows are trained stay as they are."""
    for name, weight in model.named_parameters():
        is_held = not weight.requires_grad and weight.dim() > 1 and ".token_adapter." not in name
        if dtype is not None and is_held:
            weight.data = weight.data.to(dtype)
    return model


def save_adapters(model: PeftModel, directory: Path) -> None:
    """Write the adapters to `directory`: equal adapters give equal bytes."""
    model.save_pretrained(str(directory), save_embedding_layers=False)
    (directory / "README.md").unlink(missing_ok=True)
    path = directory / "adapter_config.json"
    settings = json.loads(path.read_text())
    for name, value in settings.items():
        if isinstance(value, list):  # peft writes sets, in an order that differs from process to process
            settings[name] = sorted(value)
    path.write_text(json.dumps(settings, indent=2, sort_keys=True) + "\n")
    (directory / _SETTINGS).write_text(_settings_of(model).model_dump_json(indent=2) + "\n")


def load_adapters(model: PreTrainedModel, directory: Path) -> PeftModel:
    """`model` with the adapters of `save_adapters`, frozen.

    Raises:
        DataError: a file is missing or damaged, or the adapters are those of another model.
    """
    try:
        config = LoraConfig.model_validate_json((directory / _SETTINGS).read_text())
        adapted: Any = PeftModel.from_pretrained(model, str(directory), is_trainable=False)
    except Exception as error:  # peft and safetensors raise many types on a damaged file
        reason = " ".join(str(error).split())
        raise DataError(
            f"The adapters in {directory} cannot be loaded: {reason:.300}",
            "Expected the files that this project saved, next to their base model.",
            "Run the stage that made them again: delete its directory under .dreamgym/stages.",
        ) from error
    adapted.dreamgym_lora = config
    return adapted


def base_of(model: PeftModel) -> PreTrainedModel:
    """The model without its adapters, its weights shared with `model`."""
    shared: dict[int, Any] = {id(tensor): tensor for tensor in (*model.parameters(), *model.buffers())}
    base: Any = copy.deepcopy(model, shared).unload()
    return base


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
    """The plain model with its adapters merged into fp32 weights; a model without adapters as it is."""
    if isinstance(model, PeftModel):
        model.float()
        merged: Any = model.merge_and_unload()
        return merged
    return model


def without_adapters(model: PreTrainedModel | PeftModel) -> PreTrainedModel:
    """The transformers model inside `model`; its layers still compute with the adapters."""
    if isinstance(model, PeftModel):
        inner: Any = model.get_base_model()
        return inner
    return model
