"""Backbones: build a small transformer, load or save any Hugging Face causal language model, add and merge
LoRA adapters.

Weights are read and written as safetensors only, and loaded as fp32 whatever precision they were stored in
(`compute.py` makes the bf16 copies that decode). Dropout is turned off: the policy that samples and the
policy that is trained must be the same. Nothing else in `components/` knows which architecture it works with;
the two questions that matter for speed are answered here (`without_adapters`, `has_plain_head`).
"""

from __future__ import annotations

import copy
import os
import shutil
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from peft import LoraConfig as PeftLoraConfig
from peft import PeftModel, get_peft_model
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
from transformers.pytorch_utils import Conv1D
from transformers.utils import logging as transformers_logging

from components.config import BackboneConfig, ChatTemplate, LoraConfig
from components.errors import ConfigError, DataError
from components.language.checkpoint_files.model_size import plausible_size, require_memory
from components.language.checkpoint_files.weight_checks import (
    refuse_left_out,
    refuse_other_head,
    refuse_quantised,
    require_finite,
)
from components.language.checkpoint_files.weight_files import stored_weights
from components.language.marker_rows import fit_rows
from components.language.markers import END, MARKERS, PAD
from components.language.sampled_ids import set_unknown_ids
from components.language.tokenizer import Vocabulary
from components.language.torch_seeds import torch_seed

transformers_logging.disable_progress_bar()  # a bar for each of a stage's many small models says nothing

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
PROBE_TOLERANCE = (
    1e-3  # nats between what our ways of computing say of an unknown architecture and what it says itself
)
PLAIN_HEADS = frozenset({"llama", "qwen2", "qwen3", "mistral"})


def build_backbone(config: BackboneConfig, vocabulary_size: int, seed: int) -> PreTrainedModel:
    """A Llama- or Qwen3-shaped model with random weights: grouped-query attention, SwiGLU of three times the
    width, tied embeddings.

    The global random state is left as it was.

    Raises:
        ConfigError: `hidden` is not a multiple of twice `heads` (rotary positions need heads of even width),
            or `heads` none of
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
        torch.manual_seed(torch_seed(seed))
        model = (
            Qwen3ForCausalLM(Qwen3Config(**shape))
            if config.family == "qwen"
            else LlamaForCausalLM(LlamaConfig(**shape))
        )
    return model.float()


def load_backbone(
    path: Path | str, device: str = "cpu", *, chat_template: ChatTemplate = "auto"
) -> tuple[PreTrainedModel, Vocabulary]:
    """The causal language model (fp32, evaluation mode) and the vocabulary in directory `path`, or of that
    hub name.

    Markers that the tokenizer lacks are added and the embeddings grown to fit, with the same new rows at
    every load. Ids that the model has rows for and the tokenizer does not know are never sampled
    (`sampled_ids.py`). With `chat_template="off"` the tokenizer's own is taken away, also from what is saved
    later.

    Raises:
        DataError: no weights, not all of them, two sets of them or an adapter, no tokenizer, unreadable
            files, a tokenizer with more
            ids than the model has embeddings, or a model that does not fit into the memory.
        ConfigError: a chat template that cannot be used.
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
    vocabulary = Vocabulary.load(path, chat_template)
    model = _load_weights(path, config if config is not None else read_config(path))
    note_untied_head(model)
    forget_generation_settings(model)
    require_finite(model, sorted({*vocabulary.unknown_ids(head_rows(model)), *vocabulary.added}), path)
    fit_rows(model, vocabulary, path)
    set_unknown_ids(model, vocabulary.unknown_ids(head_rows(model)))
    return model.to(device).eval(), vocabulary


def read_config(path: Path | str) -> Any:
    """The transformers config of the model in `path`, without dropout.

    Raises:
        DataError: it cannot be read, needs code of its own, or says that the weights are quantised.
    """
    try:
        config = AutoConfig.from_pretrained(str(path), trust_remote_code=False)
    except Exception as error:  # whatever a config of a stranger makes transformers raise
        raise _cannot_be_loaded(path, error) from error
    refuse_quantised(path, config)
    for name, value in list(vars(config).items()):
        if (
            ("drop" in name or name.endswith("_pdrop"))
            and isinstance(value, int | float)
            and not isinstance(value, bool)
        ):
            setattr(config, name, 0.0)
    if getattr(
        config, "output_attentions", False
    ):  # not with sdpa attention; such a config cannot be saved again
        config.output_attentions = False
    return config


def _cannot_be_loaded(path: Path | str, error: Exception) -> DataError:
    expected, next_step = (
        "Expected a causal language model with safetensors weights.",
        "Check backbone.path, or load the model again.",
    )
    said = " ".join(str(error).split())
    return DataError(f"The model in {path} cannot be loaded: {said}", expected, next_step)


def _load_weights(path: Path | str, config: Any) -> Any:
    """The model in `path`, fp32.

    Raises:
        DataError: it cannot be read, the files do not hold all of its weights (transformers would draw the
            others at random), or they
            hold further blocks or an adapter.
    """
    options = {
        "dtype": torch.float32,
        "use_safetensors": True,
        "output_loading_info": True,
        "trust_remote_code": False,
        "ignore_mismatched_sizes": True,  # they are told below, by name
    }
    try:
        loaded: Any = AutoModelForCausalLM.from_pretrained(str(path), config=config, **options)
    except Exception as error:  # whatever the files of a stranger make transformers raise
        raise _cannot_be_loaded(path, error) from error
    model, found = loaded
    refuse_left_out(path, found["unexpected_keys"], [name for name, _ in model.named_parameters()])
    lacking = sorted(found["missing_keys"]) + sorted(str(entry[0]) for entry in found["mismatched_keys"])
    if lacking:
        shown = ", ".join(lacking[:3]) + (f" and {len(lacking) - 3} more" if len(lacking) > 3 else "")
        raise DataError(
            f"The files in {path} lack weights of the model that its config.json describes: {shown}.",
            "Expected a causal language model with safetensors weights.",
            "Check backbone.path, or load the model again.",
        )
    return model


def note_untied_head(model: Any) -> None:
    """Say in the config what the file says: an output head with weights of its own is not tied to the
    embeddings.

    transformers leaves the two apart where a checkpoint holds both with different values, whatever
    `tie_word_embeddings` says, but ties them when the embeddings are resized or the model is loaded again.
    """
    head, embeddings = model.get_output_embeddings(), model.get_input_embeddings()
    if head is None or head.weight is embeddings.weight:
        return
    for config in (model.config, model.config.get_text_config()):
        if getattr(config, "tie_word_embeddings", False):
            config.tie_word_embeddings = False


def forget_generation_settings(model: Any) -> None:
    """Drop what the checkpoint's generation_config.json says of sampling: this model is trained and sampled
    without any of it.

    Saved with a penalty or a top_p, a policy would be another one in every server that reads that file.
    """
    settings = model.generation_config
    if settings is not None and set(settings.to_diff_dict()) - TOKEN_SETTINGS:
        tokens = {name: getattr(settings, name) for name in ("bos_token_id", "eos_token_id", "pad_token_id")}
        model.generation_config = GenerationConfig(**tokens)


def head_rows(model: Any) -> int:
    """How many logits the model gives for each token."""
    head = model.get_output_embeddings()
    return int((model.get_input_embeddings() if head is None else head).weight.shape[0])


def save_model(
    model: PreTrainedModel | PeftModel,
    vocabulary: Vocabulary,
    directory: Path | str,
    dtype: torch.dtype | None = None,
) -> None:
    """Write model and vocabulary to `directory`, which `load_backbone` reads; an earlier one there is
    replaced as a whole.

    Adapters are merged into what is written (`model` itself is left as it is). `dtype` stores the weights in
    another precision, for example torch.float16 for half the size. Written beside, then renamed: a crash
    leaves no half of a model.
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


def add_lora(
    model: PreTrainedModel, config: LoraConfig, *, added: Sequence[int] = (), seed: int = 0
) -> PreTrainedModel | PeftModel:
    """`model` with trainable low-rank adapters and all else frozen; with rank 0 `model` itself.

    Args:
        added: ids of markers that the backbone has never seen (`Vocabulary.added`): their rows of the
            embeddings are trained too,
            since what is random and frozen could neither be read nor be written.
        seed: of the adapters' first weights; the global random state is left as it was.

    Raises:
        ConfigError: no module of the model is called like `targets`.
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
        trainable_token_indices=_rows_of(model, added),
    )
    try:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(torch_seed(seed))
            return get_peft_model(model, settings)
    except ValueError as error:
        kinds = (torch.nn.Linear, Conv1D)
        names = sorted(
            {name.rsplit(".", 1)[-1] for name, module in model.named_modules() if isinstance(module, kinds)}
        )
        next_step = f"Name some of: {', '.join(names)}; or write all-linear."
        raise ConfigError(f"lora.targets {config.targets}: {error}", next_step=next_step) from error


def _rows_of(model: PreTrainedModel, added: Sequence[int]) -> dict[str, list[int]] | None:
    """peft's setting that trains the rows `added` of the embeddings, and of the output where that has weights
    of its own.
    """
    if not added:
        return None
    ends: list[Any] = [model.get_input_embeddings()]
    head: Any = model.get_output_embeddings()
    if head is not None and head.weight is not ends[0].weight:
        ends.append(head)
    return {name: list(added) for name, module in model.named_modules() if any(module is end for end in ends)}


def merge_lora(model: PreTrainedModel | PeftModel) -> PreTrainedModel:
    """The plain model with its adapters merged into the weights; a model without adapters comes back
    unchanged.
    """
    if isinstance(model, PeftModel):
        merged: Any = model.merge_and_unload()
        return merged
    return model


def merged_copy(model: PreTrainedModel | PeftModel) -> PreTrainedModel:
    """`merge_lora` of a copy, so that training may go on with the adapters; a model without adapters is no
    copy but itself.
    """
    return merge_lora(copy.deepcopy(model)) if isinstance(model, PeftModel) else model


def without_adapters(model: PreTrainedModel | PeftModel) -> PreTrainedModel:
    """The transformers model inside `model`, still computing with the adapters that peft put into its
    layers.
    """
    if isinstance(model, PeftModel):
        inner: Any = model.get_base_model()
        return inner
    return model


def has_plain_head(model: PreTrainedModel) -> bool:
    """True if logits are just the output embedding of the last hidden state, and can so be computed at a few
    positions only.
    """
    return model.config.model_type in PLAIN_HEADS


def longest_sequence(config: Any) -> int:
    """Longest sequence in tokens: the positions that the model knows, within the window of its narrowest
    layer if it has one.
    """
    positions = int(getattr(config.get_text_config(), "max_position_embeddings", 0) or 1 << 30)
    return min(positions, window_of(config) or positions)


def window_of(config: Any) -> int:
    """How many tokens the narrowest layer attends to; 0 where every layer sees all that stands before."""
    config = config.get_text_config()
    layers = list(getattr(config, "layer_types", None) or getattr(config, "attention_layers", None) or [])
    kinds = {"sliding": "sliding_window", "chunked": "attention_chunk_size", "local": "window_size"}
    windows = [
        int(getattr(config, name, 0) or 0)
        for kind, name in kinds.items()
        if any(kind in layer for layer in layers)
    ]
    if not layers:
        windows.append(int(getattr(config, "sliding_window", 0) or 0))
    return min((window for window in windows if window), default=0)


def limit_in_words(config: Any) -> str:
    """What bounds the model's longest sequence, for messages."""
    if window_of(config) and longest_sequence(config) == window_of(config):
        return f"the window of {window_of(config)} tokens that some of its layers attend to"
    return f"max_position_embeddings of {longest_sequence(config)}"


def shorter_or_longer(config: Any) -> str:
    """What to do about a sequence that is too long for the model, for messages."""
    shorter = "Lower environment.max_steps or retrieval.k"
    if window_of(config) and longest_sequence(config) == window_of(config):
        return (
            f"{shorter}, or take a model of a wider window (backbone.path): this one is bound by "
            f"{limit_in_words(config)}."
        )
    return (
        f"{shorter}, or take a backbone with longer sequences (backbone.max_positions of dreamgym "
        "pretrain, or backbone.path)."
    )
