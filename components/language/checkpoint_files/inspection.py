"""Inspection of a model in seconds: finds what would stop a stage later, before anything is trained.

A model of up to `LOADED_SIZE` bytes is loaded, as every stage loads it. Of a larger one only the headers, the
config and the tokenizer are read. Its architecture is tried on a small random model of the same kind.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from transformers import AutoModelForCausalLM

from components.config import TextFormat
from components.errors import DataError
from components.language.backbone import load_backbone, read_config
from components.language.checkpoint_files.model_size import (
    BYTES,
    empty_model,
    gigabytes,
    plausible_size,
    require_memory,
)
from components.language.checkpoint_files.weight_checks import list_names, refuse_left_out
from components.language.checkpoint_files.weight_files import stored_weights
from components.language.engines.kept_cache_probe import probe_kept_cache
from components.language.evaluation_mode import evaluating
from components.language.output_head import has_plain_head
from components.language.sequence_limits import limit_in_words, longest_sequence
from components.language.training.branch_probe import probe_branches
from components.language.vocabulary.load_vocabulary import load_vocabulary
from components.language.vocabulary.marker_rows import too_few_rows
from components.language.vocabulary.vocabulary import Vocabulary

LOADED_SIZE = 600 * 2**20
"""Largest model, in bytes of weights on disk, that is loaded to be inspected; takes a second or two."""
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
"""Largest values of a miniature's settings, as far as the architecture has them."""


@dataclass(frozen=True)
class Inspection:
    """A model that a run can start with.

    `weights` counts its parameters. `longest` is its longest sequence in tokens, `limit` what bounds it, in
    words. `untied` is True if the output head has its own weights.
    """

    path: Path
    weights: int
    longest: int
    limit: str
    vocabulary: Vocabulary
    untied: bool

    @property
    def summary(self) -> str:
        """One line for people."""
        head = ", an output head of its own" if self.untied else ""
        memory = gigabytes(BYTES * self.weights)
        counts = f"{self.weights:,} parameters ({memory} in fp32), {len(self.vocabulary):,} tokens"
        limit = f"sequences of up to {self.longest:,} tokens"
        return f"{self.path}, {counts}, {limit}, format {self.vocabulary.format}{head}"


def inspect_model(directory: Path, text_format: TextFormat = "auto") -> Inspection:
    """The model in `directory`, checked for everything that would stop a stage.

    Raises:
        DataError: files are missing, damaged or of two models; the tokenizer does not fit; or there is too
            little memory.
        ConfigError: the kept cache or the training on branches cannot compute the architecture, or the chat
            template is unusable.
    """
    stored = stored_weights(directory)
    if stored.size <= LOADED_SIZE:
        model, vocabulary = load_backbone(directory, text_format=text_format)
        if not has_plain_head(model):
            probe_architecture(model)
        weights = sum(weight.numel() for weight in model.parameters())
        return _inspection(directory, weights, model.config, vocabulary)
    config = read_config(directory)
    weights = plausible_size(directory, config, stored)
    require_memory(directory, weights)
    vocabulary = load_vocabulary(directory, text_format)
    empty = empty_model(directory, config)
    rows = int(empty.get_input_embeddings().weight.shape[0])
    if vocabulary.rows_before > rows:
        raise too_few_rows(vocabulary, rows, directory)
    if has_plain_head(empty):
        _refuse_missing_weights(directory, empty, stored.shapes)
    else:
        probe_architecture(miniature(directory, config))
    return _inspection(directory, weights, config, vocabulary)


def _inspection(directory: Path, weights: int, config: Any, vocabulary: Vocabulary) -> Inspection:
    """The result for a model that passed all checks."""
    untied = not getattr(config, "tie_word_embeddings", False)
    return Inspection(
        directory, weights, longest_sequence(config), limit_in_words(config), vocabulary, untied
    )


def probe_architecture(model: Any) -> None:
    """Compare the kept cache, and training on branches, with plain forward passes of `model`.

    Raises:
        ConfigError: the numbers differ.
    """
    with evaluating(model):
        probe_kept_cache(model)
    probe_branches(model)


def miniature(directory: Path, config: Any) -> Any:
    """A small random model of the architecture of `config`: the same attention, few and narrow layers.

    Raises:
        DataError: transformers cannot build it.
    """
    small_config = _small_config(config)
    try:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            model = AutoModelForCausalLM.from_config(small_config).float().eval()
            for weight in model.parameters():
                if weight.dim() > 1:  # large enough that an error in attention shows in the logits
                    weight.data.normal_(std=weight.shape[-1] ** -0.5)
    except Exception as error:  # transformers may raise any exception on a config that it does not know
        raise DataError(
            f"The model in {directory} cannot be built: {type(error).__name__}: {error}",
            "Expected the config.json of a causal language model.",
            "Check backbone.path.",
        ) from error
    return model


def _small_config(config: Any) -> Any:
    """A copy of `config` with the sizes of `SMALL` and one or two layers of each kind."""
    small_config = copy.deepcopy(config)
    text_config = small_config.get_text_config()
    for name, value in SMALL.items():
        own_value = getattr(text_config, name, None)
        if isinstance(own_value, int):
            setattr(text_config, name, min(value, own_value))
    kinds = list(dict.fromkeys(getattr(text_config, "layer_types", None) or ["", ""]))
    layers = min(int(text_config.num_hidden_layers), max(2, len(kinds)))
    text_config.num_hidden_layers = layers
    if any(kinds):
        text_config.layer_types = (kinds * layers)[:layers]
    return small_config


def _refuse_missing_weights(directory: Path, empty: Any, shapes: dict[str, tuple[int, ...]]) -> None:
    """Raise DataError if the files lack weights of `empty`, or hold weights that it does not read.

    For the plain architectures only: their files name the weights as the model does, or without "model.".
    """
    is_tied = getattr(empty.config, "tie_word_embeddings", False)
    expected_shapes = {
        name: tuple(weight.shape)
        for name, weight in empty.named_parameters()
        if not (is_tied and name.startswith("lm_head."))
    }
    stored_shapes = shapes | {f"model.{name}": shape for name, shape in shapes.items()}
    unread_names = [
        name for name in shapes if name not in expected_shapes and f"model.{name}" not in expected_shapes
    ]
    refuse_left_out(directory, unread_names, expected_shapes)
    missing_names = sorted(
        name for name, shape in expected_shapes.items() if stored_shapes.get(name) != shape
    )
    if missing_names:
        raise DataError(
            f"The files in {directory} lack weights of the model that its config.json describes: "
            f"{list_names(missing_names)}.",
            "Expected config.json and weights of one model.",
            "Load both from the same place again.",
        )
