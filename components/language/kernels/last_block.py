"""The last block of a decoder, computed only where a token is predicted: the same numbers in less time.

The policy wrote about a quarter of the tokens of an episode. Every block but the last must compute all
tokens, because later tokens attend to them. Of the last block only the keys and values are needed everywhere.
Its queries, output, MLP and the norm after it are computed at the predicting positions alone.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention
from transformers import PreTrainedModel
from transformers.models.llama.modeling_llama import rotate_half

from components.language.kernels.cache_attention import repeat_for_heads
from components.language.kernels.fused_decoder import FAMILIES


def can_narrow(model: PreTrainedModel) -> bool:
    """True if `hidden_at` computes what `model` does: a known architecture with plain causal attention."""
    config: Any = model.config
    has_dropout = model.training and getattr(config, "attention_dropout", 0.0) > 0
    return config.model_type in FAMILIES and config._attn_implementation == "sdpa" and not has_dropout


def hidden_at(model: PreTrainedModel, ids: Tensor, rows: Tensor, places: Tensor, widest: int) -> Tensor:
    """The last hidden states [n, H] at n places of a batch.

    Args:
        model: one that `can_narrow` accepts.
        ids: tokens int64 [B, L]. A state does not depend on the tokens after it.
        rows: int64 [n], ascending: the row of each place.
        places: int64 [n]: the column of each place.
        widest: most places of a row.
    """
    decoder: Any = model.get_decoder()
    states = decoder.embed_tokens(ids)
    positions = torch.arange(ids.shape[1], device=ids.device)[None]
    rotary = decoder.rotary_emb(states, position_ids=positions)
    *blocks, last = decoder.layers[: model.config.num_hidden_layers]
    for block in blocks:
        states = block(
            states, attention_mask=None, position_embeddings=rotary, position_ids=positions, use_cache=False
        )
    # In this order: autograd adds the gradients of `states` in the order in which its uses were computed.
    residual = states[rows, places]
    narrow = residual + last.self_attn.o_proj(_attention_at(last, states, rotary, rows, places, widest))
    return decoder.norm(narrow + last.mlp(last.post_attention_layernorm(narrow)))


def _attention_at(
    block: Any,
    states: Tensor,
    rotary: tuple[Tensor, Tensor],
    rows: Tensor,
    places: Tensor,
    widest: int,
) -> Tensor:
    """The output [n, heads * d] of the block's attention at n places.

    The queries of a row are padded to a rectangle [B, `widest`].
    """
    attention = block.self_attn
    normed = block.input_layernorm(states)
    counts = torch.bincount(rows, minlength=len(states))
    ranks = torch.arange(len(rows), device=rows.device) - (counts.cumsum(0) - counts)[rows]
    query_places = torch.zeros(len(states), widest, dtype=torch.long, device=rows.device)
    query_places[rows, ranks] = places
    query_states = normed.gather(1, query_places[:, :, None].expand(-1, -1, normed.shape[2]))
    row_index = torch.arange(len(states), device=rows.device)[:, None]
    cosines, sines = (table.expand(len(states), -1, -1)[row_index, query_places] for table in rotary)
    query = _rotate(_project(attention, "q", query_states), cosines, sines)
    key = _rotate(_project(attention, "k", normed), *rotary)
    value = _project(attention, "v", normed)
    is_grouped = key.shape[1] != query.shape[1]
    if is_grouped and query.is_cuda:
        # The memory-saving CUDA kernels take no groups together with a mask.
        key = repeat_for_heads(key, query.shape[1])
        value = repeat_for_heads(value, query.shape[1])
    mask = torch.arange(states.shape[1], device=rows.device) <= query_places[:, None, :, None]
    options = {"scale": attention.scaling, "enable_gqa": is_grouped and not query.is_cuda}
    mixed = scaled_dot_product_attention(query, key, value, mask, **options)
    return mixed.transpose(1, 2)[rows, ranks].flatten(1)


def _project(attention: Any, name: str, states: Tensor) -> Tensor:
    """Queries, keys or values [B, heads, n, d] of states [B, n, H], normed where the architecture does that.

    Args:
        attention: the attention layer.
        name: "q", "k" or "v".
        states: after the layer norm.
    """
    heads = getattr(attention, f"{name}_proj")(states).unflatten(-1, (-1, attention.head_dim))
    norm = getattr(attention, f"{name}_norm", None)
    return (heads if norm is None else norm(heads)).transpose(1, 2)


def _rotate(states: Tensor, cosines: Tensor, sines: Tensor) -> Tensor:
    """States [B, heads, n, d] rotated by their positions, whose tables are [B, n, d]."""
    return states * cosines[:, None] + rotate_half(states) * sines[:, None]
