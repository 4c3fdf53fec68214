"""The attention function of generation over a kept cache, registered with transformers: it reads the cache
where it lies.

Stock attention repeats the keys and values for every query head, a copy of the whole cache at each token.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention
from transformers import AttentionInterface, PreTrainedModel

KEPT = "kept"


def kept_attention(
    module: torch.nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    scaling: float | None = None,
    **kwargs: Any,
) -> tuple[Tensor, None]:
    """Attention of query [B, H, L, d] over views key, value [B, K, n, d] with H a multiple of K and an
    additive mask [B, 1, L, n].

    Raises:
        ValueError: the architecture changes the scores (a cap on them, or a sink), which is not done here.
    """
    changed = [name for name in ("softcap", "s_aux") if kwargs.get(name) is not None]
    if changed:
        raise ValueError(f"its attention has {', '.join(changed)}, which this engine leaves out")
    rows, heads, length, width = query.shape
    groups = key.shape[1]
    if length == 1:
        # One new token: the query heads of a group stand side by side as if they were tokens, against the
        # keys they share.
        packed = query.reshape(rows, groups, heads // groups, width)
        mixed = scaled_dot_product_attention(packed, key, value, attn_mask=attention_mask, scale=scaling)
        return mixed.reshape(rows, 1, heads, value.shape[-1]), None
    mixed = scaled_dot_product_attention(
        query, shared(key, heads), shared(value, heads), attn_mask=attention_mask, scale=scaling
    )
    return mixed.transpose(1, 2).contiguous(), None


def shared(states: Tensor, heads: int) -> Tensor:
    """States [B, K, n, d] for all query heads [B, heads, n, d]; with one key-value head this is a view."""
    return states[:, :, None].expand(-1, -1, heads // states.shape[1], -1, -1).flatten(1, 2)


AttentionInterface.register(KEPT, kept_attention)


@contextmanager
def attention_of(model: PreTrainedModel, name: str) -> Iterator[None]:
    """Let `model` use the attention function `name` within the block, and put back what it had."""
    before = model.config._attn_implementation
    model.config._attn_implementation = name
    try:
        yield
    finally:
        model.config._attn_implementation = before


@contextmanager
def evaluating(model: PreTrainedModel) -> Iterator[None]:
    """Evaluation mode without gradients within the block; training mode is put back if the model was in
    it.
    """
    training = model.training
    if training:
        model.eval()
    try:
        with torch.inference_mode():
            yield
    finally:
        if training:
            model.train()
