"""What would stop a model later, found in seconds and before anything is trained.

A model of up to `LOADED_SIZE` bytes is loaded as every stage loads it. Of a larger one the headers, the
config and the tokenizer are read, and its architecture is tried on a small model of the same kind with random
weights.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from transformers import AutoModelForCausalLM

from components.config import ChatTemplate
from components.errors import DataError
from components.language.backbone import load_backbone, read_config
from components.language.checkpoint_files.model_size import (
    BYTES,
    empty_model,
    gigabytes,
    plausible_size,
    require_memory,
)
from components.language.checkpoint_files.weight_checks import refuse_left_out
from components.language.checkpoint_files.weight_files import stored_weights
from components.language.engines.kept_cache_probe import probe_kept_cache
from components.language.evaluation_mode import evaluating
from components.language.marker_rows import too_few_rows
from components.language.output_head import has_plain_head
from components.language.sequence_limits import limit_in_words, longest_sequence
from components.language.tokenizer import Vocabulary
from components.language.training.branch_probe import probe_branches

LOADED_SIZE = 600 * 2**20
"""Bytes of weights on disk up to which a model is loaded to be inspected: a second or two."""
SMALL = {
    "vocab_size": 64,
    "intermediate_size": 64,
    "moe_intermediate_size": 64,
    "shared_expert_intermediate_size": 64,
    "ffn_dim": 64,
    "n_inner": 64,
    "num_local_experts": 4,
    "num_experts": 4,
    "n_routed_experts": 4,
    "num_experts_per_tok": 2,
    "pad_token_id": 0,
    "bos_token_id": 0,
    "eos_token_id": 0,
}
"""Settings of a miniature, where the architecture has them."""


@dataclass(frozen=True)
class Inspection:
    """A model that a run can start with. `longest` in tokens, `limit` what bounds it, in words."""

    path: Path
    weights: int
    longest: int
    limit: str
    vocabulary: Vocabulary
    untied: bool

    @property
    def summary(self) -> str:
        """One line for people."""
        wrapped = ", chat template" if self.vocabulary.has_chat_template else ""
        head = ", an output head of its own" if self.untied else ""
        memory = gigabytes(BYTES * self.weights)
        counts = f"{self.weights:,} parameters ({memory} in fp32), {len(self.vocabulary):,} tokens"
        return f"{self.path}, {counts}, sequences of up to {self.longest:,} tokens{wrapped}{head}"


def inspect_model(directory: Path, chat_template: ChatTemplate = "auto") -> Inspection:
    """The model in `directory`, looked at for everything that would stop a stage.

    Raises:
        DataError: files that are missing, damaged or of two models, a tokenizer that does not fit, or too
            little memory.
        ConfigError: an architecture that the kept cache or the training on branches does not compute, or an
            unusable chat template.
    """
    stored = stored_weights(directory)
    if stored.size <= LOADED_SIZE:
        model, vocabulary = load_backbone(directory, chat_template=chat_template)
        config = model.config
        if not has_plain_head(model):
            probe_architecture(model)
        weights = sum(weight.numel() for weight in model.parameters())
        return _found(directory, weights, config, vocabulary)
    config = read_config(directory)
    weights = plausible_size(directory, config, stored)
    require_memory(directory, weights)
    vocabulary = Vocabulary.load(directory, chat_template)
    empty = empty_model(directory, config)
    rows = int(empty.get_input_embeddings().weight.shape[0])
    if vocabulary.rows_before > rows:
        raise too_few_rows(vocabulary, rows, directory)
    if has_plain_head(empty):
        _refuse_missing(directory, empty, stored.shapes)
    else:
        probe_architecture(miniature(directory, config))
    return _found(directory, weights, config, vocabulary)


def _found(directory: Path, weights: int, config: Any, vocabulary: Vocabulary) -> Inspection:
    untied = not getattr(config, "tie_word_embeddings", False)
    return Inspection(
        directory, weights, longest_sequence(config), limit_in_words(config), vocabulary, untied
    )


def probe_architecture(model: Any) -> None:
    """Raise ConfigError if `model` computes other numbers with a kept cache, or in training on branches, than
    it does plainly.
    """
    with evaluating(model):
        probe_kept_cache(model)
    probe_branches(model)


def miniature(directory: Path, config: Any) -> Any:
    """A model of the architecture of `config` with the same attention, few and narrow layers, and random
    weights.
    """
    small = copy.deepcopy(config)
    text = small.get_text_config()
    for name, value in SMALL.items():
        if isinstance(getattr(text, name, None), int):
            setattr(text, name, min(value, getattr(text, name)))
    kinds = list(dict.fromkeys(getattr(text, "layer_types", None) or ["", ""]))
    layers = min(int(text.num_hidden_layers), max(2, len(kinds)))
    text.num_hidden_layers = layers
    if any(kinds):
        text.layer_types = (kinds * layers)[:layers]
    try:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            model = AutoModelForCausalLM.from_config(small).float().eval()
            for weight in model.parameters():
                if weight.dim() > 1:  # wide enough that what attention leaves out is seen in the logits
                    weight.data.normal_(std=weight.shape[-1] ** -0.5)
    except Exception as error:  # whatever a config makes transformers raise
        found = f"The model in {directory} cannot be built: {type(error).__name__}: {error}"
        raise DataError(
            found, "Expected the config.json of a causal language model.", "Check backbone.path."
        ) from error
    return model


def _refuse_missing(directory: Path, empty: Any, shapes: dict[str, tuple[int, ...]]) -> None:
    """Of the plain architectures, whose files name the weights as the model does."""
    tied = getattr(empty.config, "tie_word_embeddings", False)
    wanted = {
        name: tuple(weight.shape)
        for name, weight in empty.named_parameters()
        if not (tied and name.startswith("lm_head."))
    }
    known = shapes | {f"model.{name}": shape for name, shape in shapes.items()}
    refuse_left_out(
        directory, [name for name in shapes if name not in wanted and f"model.{name}" not in wanted], wanted
    )
    lacking = sorted(name for name, shape in wanted.items() if known.get(name) != shape)
    if lacking:
        shown = ", ".join(lacking[:3]) + (f" and {len(lacking) - 3} more" if len(lacking) > 3 else "")
        found = f"The files in {directory} lack weights of the model that its config.json describes: {shown}."
        raise DataError(
            found, "Expected config.json and weights of one model.", "Load both from the same place again."
        )
