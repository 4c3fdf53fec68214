"""Backbones: build a small transformer, load or save any Hugging Face causal language model.

Weights are read and written as safetensors only. They are loaded as fp32 from any stored precision
(`compute.py` makes the bf16 copies that decode). Dropout is turned off: the policy that samples and the
policy that is trained must be the same function. No other part of `components/` depends on the architecture;
`output_head.py` and `adapters.py` answer the two questions that matter for speed.
"""

from __future__ import annotations

import copy
import os
import shutil
import tempfile
from pathlib import Path
from typing import Any

import torch
from peft import PeftModel
from transformers import (
    AutoConfig,
    AutoModelForCausalLM,
    GenerationConfig,
    LlamaConfig,
    LlamaForCausalLM,
    PreTrainedModel,
    Qwen3Config,
    Qwen3ForCausalLM,
)

from components.config import BackboneConfig, TextFormat
from components.errors import ConfigError, DataError
from components.language import transformers_setup as transformers_setup  # turns off the progress bars
from components.language.adapters import ADAPTER, base_of, load_adapters, merge_lora, save_adapters
from components.language.checkpoint_files.model_size import plausible_size, require_memory
from components.language.checkpoint_files.weight_checks import (
    list_names,
    refuse_left_out,
    refuse_other_head,
    refuse_quantised,
    require_finite,
)
from components.language.checkpoint_files.weight_files import stored_weights
from components.language.output_head import head_rows, note_untied_head
from components.language.sampled_ids import set_unknown_ids
from components.language.torch_seeds import torch_seed
from components.language.vocabulary.compact_vocabulary import CompactVocabulary
from components.language.vocabulary.load_vocabulary import load_vocabulary
from components.language.vocabulary.marker_rows import fit_rows, require_rows
from components.language.vocabulary.markers import END, MARKERS, PAD
from components.language.vocabulary.vocabulary import Vocabulary

TOKEN_SETTINGS = {
    "bos_token_id",
    "eos_token_id",
    "pad_token_id",
    "transformers_version",
    "_from_model_config",
    "use_cache",
    "output_attentions",
    "output_hidden_states",
}
"""Settings of generation that do not change what is sampled."""
EXPECTED_MODEL = "Expected a causal language model with safetensors weights."
CHECK_PATH = "Check backbone.path, or load the model again."


def build_backbone(config: BackboneConfig, vocabulary_size: int, seed: int) -> PreTrainedModel:
    """A Llama- or Qwen3-shaped model with random weights, drawn from `seed`.

    It has grouped-query attention, a SwiGLU of three times the width, and tied embeddings. The global random
    state does not change.

    Raises:
        ConfigError: `hidden` is not a multiple of twice `heads` (rotary positions need heads of even width),
            or `heads` is not a multiple of `key_value_heads`.
    """
    _require_even_heads(config)
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
        torch.manual_seed(torch_seed(seed))
        model = (
            Qwen3ForCausalLM(Qwen3Config(**shape))
            if config.family == "qwen"
            else LlamaForCausalLM(LlamaConfig(**shape))
        )
    return model.float()


def _require_even_heads(config: BackboneConfig) -> None:
    """Raise ConfigError if the heads do not divide the width evenly, or the key-value heads the heads."""
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


def load_backbone(
    path: Path | str, device: str = "cpu", *, text_format: TextFormat = "auto", system: str = ""
) -> tuple[Any, Vocabulary]:
    """The causal language model (fp32, evaluation mode) and the vocabulary of a directory or a hub name.

    It is a `PreTrainedModel`, or a `PeftModel` where `save_model` saved one: its adapters are frozen.

    In format compact, markers that the tokenizer lacks are added, and the embeddings grow to fit, with the
    same new rows at every load. Ids that the model has rows for and the tokenizer does not know are never
    sampled (`sampled_ids.py`).

    Args:
        path: directory of the model, or its name on the hub.
        device: where the model is put.
        text_format: see `load_vocabulary`.
        system: text of the system turn, for a chat model whose card has none.

    Raises:
        DataError: weights are missing, incomplete, there twice, or those of an adapter; there is no
            tokenizer, or it has more ids than the model has embeddings; a file is unreadable; the model does
            not fit into the memory.
        ConfigError: the chat template cannot be used.
    """
    directory = Path(path)
    if not str(path) or (directory.is_absolute() and not directory.is_dir()):
        raise DataError(
            f"There is no backbone directory {str(path)!r}.",
            next_step="Make it with dreamgym pretrain, or set backbone.path.",
        )
    config = None
    if directory.is_dir():
        stored = stored_weights(directory)
        config = read_config(directory)
        require_memory(directory, plausible_size(directory, config, stored))
        refuse_other_head(directory, config, stored.shapes)
    vocabulary = load_vocabulary(path, text_format, system=system)
    model = _load_weights(path, config if config is not None else read_config(path))
    note_untied_head(model)
    forget_generation_settings(model)
    require_finite(model, sorted({*vocabulary.unknown_ids(head_rows(model)), *vocabulary.added}), path)
    require_rows(model, vocabulary, path)
    if isinstance(vocabulary, CompactVocabulary):
        fit_rows(model, vocabulary)
    set_unknown_ids(model, vocabulary.unknown_ids(head_rows(model)))
    if (directory / ADAPTER).is_dir():
        model = load_adapters(model, directory / ADAPTER)
    return model.to(device).eval(), vocabulary


def read_config(path: Path | str) -> Any:
    """The transformers config of the model in `path`, with all dropout set to 0.

    Raises:
        DataError: it cannot be read, needs code of its own, or says that the weights are quantised.
    """
    try:
        config = AutoConfig.from_pretrained(str(path), trust_remote_code=False)
    except Exception as error:  # transformers may raise any exception on a config that it does not know
        raise _unloadable_model(path, error) from error
    refuse_quantised(path, config)
    for name, value in list(vars(config).items()):
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        if ("drop" in name or name.endswith("_pdrop")) and is_number:
            setattr(config, name, 0.0)
    if getattr(config, "output_attentions", False):
        # sdpa attention gives no weights, and a config that asks for them cannot be saved again.
        config.output_attentions = False
    return config


def _unloadable_model(path: Path | str, error: Exception) -> DataError:
    """The error for a model that transformers cannot load."""
    reason = " ".join(str(error).split())
    return DataError(f"The model in {path} cannot be loaded: {reason}", EXPECTED_MODEL, CHECK_PATH)


def _load_weights(path: Path | str, config: Any) -> Any:
    """The model in `path`, fp32.

    Raises:
        DataError: it cannot be read; the files do not hold all of its weights (transformers would draw the
            others at random); or they hold further blocks or an adapter.
    """
    options = {
        "dtype": torch.float32,
        "use_safetensors": True,
        "output_loading_info": True,
        "trust_remote_code": False,
        "ignore_mismatched_sizes": True,  # reported below, by name
    }
    try:
        loaded: Any = AutoModelForCausalLM.from_pretrained(str(path), config=config, **options)
    except Exception as error:  # transformers may raise any exception on files that it does not know
        raise _unloadable_model(path, error) from error
    model, loading_info = loaded
    refuse_left_out(path, loading_info["unexpected_keys"], [name for name, _ in model.named_parameters()])
    missing_names = sorted(loading_info["missing_keys"])
    missing_names += sorted(str(entry[0]) for entry in loading_info["mismatched_keys"])
    if missing_names:
        raise DataError(
            f"The files in {path} lack weights of the model that its config.json describes: "
            f"{list_names(missing_names)}.",
            EXPECTED_MODEL,
            CHECK_PATH,
        )
    return model


def forget_generation_settings(model: Any) -> None:
    """Remove the sampling settings of the checkpoint's generation_config.json.

    The model is trained and sampled without them. If they were saved (a penalty, a top_p), every server that
    reads the file would sample another policy.
    """
    settings = model.generation_config
    if settings is not None and set(settings.to_diff_dict()) - TOKEN_SETTINGS:
        model.generation_config = GenerationConfig(
            bos_token_id=settings.bos_token_id,
            eos_token_id=settings.eos_token_id,
            pad_token_id=settings.pad_token_id,
        )


def save_model(
    model: PreTrainedModel | PeftModel,
    vocabulary: Vocabulary,
    directory: Path | str,
    dtype: torch.dtype | None = None,
) -> None:
    """Write model and vocabulary to `directory`, which `load_backbone` reads; replaces it as a whole.

    The files are written next to the directory and renamed, so that a crash leaves no half-written model.

    Args:
        model: adapters are written to a directory of their own, next to the weights that they adapt.
        vocabulary: written as tokenizer files.
        directory: created, or replaced.
        dtype: merge adapters, and store the weights in this precision, for example torch.float16 for half
            the size.
    """
    target = Path(directory)
    target.parent.mkdir(parents=True, exist_ok=True)
    temporary = Path(tempfile.mkdtemp(prefix=f".{target.name}.", dir=target.parent))
    try:
        _writable_model(model, dtype).save_pretrained(str(temporary))
        if isinstance(model, PeftModel) and dtype is None:
            save_adapters(model, temporary / ADAPTER)
        vocabulary.save(temporary)
        temporary.chmod(0o755)
        _replace_directory(temporary, target)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def _writable_model(model: PreTrainedModel | PeftModel, dtype: torch.dtype | None) -> PreTrainedModel:
    """The weights to be written: without adapters as they are, or merged and converted in a copy."""
    if dtype is None:
        return base_of(model) if isinstance(model, PeftModel) else model
    copied: Any = merge_lora(copy.deepcopy(model))
    return copied.to(dtype)


def _replace_directory(temporary: Path, target: Path) -> None:
    """Flush the files of `temporary` to the disk, then rename it to `target`."""
    for file in temporary.rglob("*"):
        if file.is_dir():
            continue
        file.chmod(0o644)
        descriptor = os.open(file, os.O_RDONLY)
        os.fsync(descriptor)
        os.close(descriptor)
    old = temporary.with_name(temporary.name + ".old")
    if target.exists():
        target.rename(old)
    temporary.rename(target)
    shutil.rmtree(old, ignore_errors=True)
