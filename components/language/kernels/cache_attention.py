"""The attention function of generation on a kept cache: it reads keys and values where they lie.

The stock functions repeat the keys and values for every query head, which copies the whole cache at each
token. `components/language/transformers_setup.py` registers this one with transformers.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

KEPT = "kept"
"""The name under which `kept_attention` is registered."""


def kept_attention(
    module: torch.nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    scaling: float | None = None,
    **kwargs: Any,
) -> tuple[Tensor, None]:
    """Attention of new tokens over a cache.

    Args:
        module: unused; part of the interface of transformers.
        query: [B, H, L, d].
        key: view [B, K, n, d] of the cache, with H a multiple of K.
        value: as `key`.
        attention_mask: additive, [B, 1, L, n].
        scaling: factor of the scores; None is 1 / sqrt(d).
        kwargs: further settings of the architecture.

    Returns:
        The mixed values [B, L, H, d], and no attention weights.

    Raises:
        ValueError: the architecture changes the scores (a cap on them, or a sink), which is left out here.
    """
    unsupported = [name for name in ("softcap", "s_aux") if kwargs.get(name) is not None]
    if unsupported:
        raise ValueError(f"its attention has {', '.join(unsupported)}, which this engine leaves out")
    rows, heads, length, width = query.shape
    groups = key.shape[1]
    if length == 1:
        # With one new token the query heads of a group are passed as if they were tokens. They then share the
        # keys of their group without a copy.
        packed = query.reshape(rows, groups, heads // groups, width)
        mixed = scaled_dot_product_attention(packed, key, value, attn_mask=attention_mask, scale=scaling)
        return mixed.reshape(rows, 1, heads, value.shape[-1]), None
    mixed = scaled_dot_product_attention(
        query,
        repeat_for_heads(key, heads),
        repeat_for_heads(value, heads),
        attn_mask=attention_mask,
        scale=scaling,
    )
    return mixed.transpose(1, 2).contiguous(), None


def repeat_for_heads(states: Tensor, heads: int) -> Tensor:
    """Keys or values [B, K, n, d] repeated to [B, heads, n, d]; with one key-value head this is a view."""
    return states[:, :, None].expand(-1, -1, heads // states.shape[1], -1, -1).flatten(1, 2)
