"""The output head of a model: its size, whether it is tied to the embeddings, whether it is plain."""

from __future__ import annotations

from typing import Any

from transformers import PreTrainedModel

PLAIN_HEADS = frozenset({"llama", "qwen2", "qwen3", "mistral"})
"""Architectures whose logits are one linear layer over the last hidden states."""


def has_plain_head(model: PreTrainedModel) -> bool:
    """True if logits are the output layer of the last hidden states alone.

    They can then be computed at a few positions only. False also for every unknown architecture.
    """
    return model.config.model_type in PLAIN_HEADS


def head_rows(model: Any) -> int:
    """How many logits the model gives for each token."""
    head = model.get_output_embeddings()
    return int((model.get_input_embeddings() if head is None else head).weight.shape[0])


def note_untied_head(model: Any) -> None:
    """Set `tie_word_embeddings` to False in the config of a model whose output head has its own weights.

    transformers keeps the two apart if a checkpoint holds both with different values, whatever the setting
    says. But it ties them when the embeddings are resized or the model is loaded again.
    """
    head = model.get_output_embeddings()
    if head is None or head.weight is model.get_input_embeddings().weight:
        return
    for config in (model.config, model.config.get_text_config()):
        if getattr(config, "tie_word_embeddings", False):
            config.tie_word_embeddings = False
