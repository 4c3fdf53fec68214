"""Backbones: build a small transformer, load or save any Hugging Face causal language model, add and merge LoRA adapters.

Weights are read and written as safetensors only, and computed in fp32 whatever precision they were stored in. Nothing else in
`components/` knows which architecture it works with; the two questions that matter for speed are answered here
(`without_adapters`, `has_plain_head`).
"""

from __future__ import annotations

import copy
import os
import shutil
import tempfile
from pathlib import Path
from typing import Any

import torch
from peft import LoraConfig as PeftLoraConfig
from peft import PeftModel, get_peft_model
from transformers import AutoModelForCausalLM, LlamaConfig, LlamaForCausalLM, PreTrainedModel, Qwen3Config, Qwen3ForCausalLM
from transformers.utils import logging as transformers_logging

from components.config import BackboneConfig, LoraConfig
from components.errors import ConfigError, DataError
from components.language.markers import END, MARKERS, PAD
from components.language.tokenizer import Vocabulary

transformers_logging.disable_progress_bar()  # a bar for each of a stage's many small models says nothing

PLAIN_HEADS = frozenset({"llama", "qwen2", "qwen3", "mistral"})


def build_backbone(config: BackboneConfig, vocabulary_size: int, seed: int) -> PreTrainedModel:
    """A Llama- or Qwen3-shaped model with random weights: grouped-query attention, SwiGLU of three times the width, tied embeddings.

    The global random state is left as it was.

    Raises:
        ConfigError: `hidden` is not a multiple of twice `heads` (rotary positions need heads of even width), or `heads` none of
            `key_value_heads`.
    """
    if config.heads % config.key_value_heads:
        raise ConfigError(
            f"backbone.heads is {config.heads} with {config.key_value_heads} key-value heads.",
            "Expected a multiple of it.",
            f"Set backbone.key_value_heads to a divisor of {config.heads}.",
        )
    if config.hidden % (2 * config.heads):
        raise ConfigError(
            f"backbone.hidden is {config.hidden} with {config.heads} heads.",
            "Expected heads of an even width.",
            f"Set backbone.hidden to a multiple of {2 * config.heads}.",
        )
    shape: dict[str, Any] = {
        "vocab_size": vocabulary_size,
        "hidden_size": config.hidden,
        "intermediate_size": 3 * config.hidden,
        "num_hidden_layers": config.layers,
        "num_attention_heads": config.heads,
        "num_key_value_heads": config.key_value_heads,
        "head_dim": config.hidden // config.heads,
        "max_position_embeddings": config.max_positions,
        "tie_word_embeddings": True,
        "pad_token_id": MARKERS.index(PAD),
        "bos_token_id": None,
        "eos_token_id": MARKERS.index(END),
        "attn_implementation": "sdpa",
    }
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = Qwen3ForCausalLM(Qwen3Config(**shape)) if config.family == "qwen" else LlamaForCausalLM(LlamaConfig(**shape))
    return model.float()


def load_backbone(path: Path | str, device: str = "cpu") -> tuple[PreTrainedModel, Vocabulary]:
    """The causal language model (fp32, evaluation mode) and the vocabulary in directory `path`, or of that hub name.

    Markers that the tokenizer lacks are added and the embeddings grown to fit, with the same new rows at every load.

    Raises:
        DataError: no weights, no tokenizer, unreadable files, or a tokenizer with more ids than the model has embeddings.
    """
    directory = Path(path)
    if not str(path) or (directory.is_absolute() and not directory.is_dir()):
        raise DataError(f"There is no backbone directory {str(path)!r}.", next_step="Make it with dreamgym pretrain, or set backbone.path.")
    if directory.is_dir() and not any(directory.glob("*.safetensors")):
        raise DataError(f"{directory} holds no weights.", "Expected *.safetensors.", "Run dvc pull, or make them with dreamgym pretrain.")
    vocabulary = Vocabulary.load(path)
    try:
        model: Any = AutoModelForCausalLM.from_pretrained(str(path), dtype=torch.float32, use_safetensors=True, attn_implementation="sdpa")
    except (OSError, ValueError, RuntimeError) as error:
        raise DataError(
            f"The model in {path} cannot be loaded: {error}",
            "Expected a causal language model with safetensors weights.",
            "Check backbone.path, or make one with dreamgym pretrain.",
        ) from error
    _fit_embeddings(model, vocabulary, path)
    return model.to(device).eval(), vocabulary


def _fit_embeddings(model: Any, vocabulary: Vocabulary, path: Path | str) -> None:
    rows = model.get_input_embeddings().weight.shape[0]
    if len(vocabulary) - vocabulary.added > rows:
        raise DataError(
            f"The tokenizer in {path} has {len(vocabulary) - vocabulary.added} ids, the model {rows} embeddings.",
            "Expected a tokenizer and weights of the same model.",
            "Put both from the same dreamgym pretrain (or download) into one directory.",
        )
    if len(vocabulary) > rows:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            model.resize_token_embeddings(len(vocabulary))


def save_model(model: PreTrainedModel | PeftModel, vocabulary: Vocabulary, directory: Path | str, dtype: torch.dtype | None = None) -> None:
    """Write model and vocabulary to `directory`, which `load_backbone` reads; an earlier one there is replaced as a whole.

    Adapters are merged into what is written (`model` itself is left as it is). `dtype` stores the weights in another
    precision, for example torch.float16 for half the size. Written beside, then renamed: a crash leaves no half of a model.
    """
    target = Path(directory)
    target.parent.mkdir(parents=True, exist_ok=True)
    beside = Path(tempfile.mkdtemp(prefix=f".{target.name}.", dir=target.parent))
    try:
        _detached(model, dtype).save_pretrained(str(beside))
        vocabulary.save(beside)
        beside.chmod(0o755)
        _replace(beside, target)
    finally:
        shutil.rmtree(beside, ignore_errors=True)


def _detached(model: PreTrainedModel | PeftModel, dtype: torch.dtype | None) -> PreTrainedModel:
    """`model` itself where it can be written as it is, else a merged or converted copy."""
    if dtype is None and not isinstance(model, PeftModel):
        return model
    copied: Any = merge_lora(copy.deepcopy(model))
    return copied.to(dtype) if dtype is not None else copied


def _replace(beside: Path, target: Path) -> None:
    for file in beside.iterdir():
        file.chmod(0o644)
        descriptor = os.open(file, os.O_RDONLY)
        os.fsync(descriptor)
        os.close(descriptor)
    old = beside.with_name(beside.name + ".old")
    if target.exists():
        target.rename(old)
    beside.rename(target)
    shutil.rmtree(old, ignore_errors=True)


def add_lora(model: PreTrainedModel, config: LoraConfig) -> PreTrainedModel | PeftModel:
    """`model` with trainable low-rank adapters and all else frozen; with rank 0 `model` itself.

    Raises:
        ConfigError: no module of the model is called like `targets`.
    """
    if config.rank == 0:
        return model
    alpha: Any = config.alpha  # declared int by peft, used as a factor
    settings = PeftLoraConfig(r=config.rank, lora_alpha=alpha, target_modules=list(config.targets), task_type="CAUSAL_LM")
    try:
        return get_peft_model(model, settings)
    except ValueError as error:
        names = sorted({name.rsplit(".", 1)[-1] for name, module in model.named_modules() if isinstance(module, torch.nn.Linear)})
        raise ConfigError(f"lora.targets {config.targets}: {error}", next_step=f"Name some of: {', '.join(names)}.") from error


def merge_lora(model: PreTrainedModel | PeftModel) -> PreTrainedModel:
    """The plain model with its adapters merged into the weights; a model without adapters comes back unchanged."""
    if isinstance(model, PeftModel):
        merged: Any = model.merge_and_unload()
        return merged
    return model


def without_adapters(model: PreTrainedModel | PeftModel) -> PreTrainedModel:
    """The transformers model inside `model`, still computing with the adapters that peft put into its layers."""
    if isinstance(model, PeftModel):
        inner: Any = model.get_base_model()
        return inner
    return model


def has_plain_head(model: PreTrainedModel) -> bool:
    """True if logits are just the output embedding of the last hidden state, and can so be computed at a few positions only."""
    return model.config.model_type in PLAIN_HEADS
