"""The last block of a decoder, computed only where something is predicted from it: the same numbers, in less
time.

Of an episode the policy wrote a quarter of the tokens. All blocks but the last must read every token, since
later ones attend to them; of the last one only its keys and values are needed everywhere: queries, output,
MLP and the norm behind it are not.
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
    dropped = model.training and getattr(config, "attention_dropout", 0.0) > 0
    return config.model_type in FAMILIES and config._attn_implementation == "sdpa" and not dropped


def hidden_at(model: PreTrainedModel, ids: Tensor, rows: Tensor, places: Tensor) -> Tensor:
    """The last hidden states [n, H] at n places of `ids` int64 [B, L], which stand row by row; what is behind
    a place is not seen.
    """
    decoder: Any = model.get_decoder()
    states = decoder.embed_tokens(ids)
    positions = torch.arange(ids.shape[1], device=ids.device)[None]
    turns = decoder.rotary_emb(states, position_ids=positions)
    *blocks, last = decoder.layers[: model.config.num_hidden_layers]
    for block in blocks:
        states = block(
            states, attention_mask=None, position_embeddings=turns, position_ids=positions, use_cache=False
        )
    narrow = states[rows, places] + last.self_attn.o_proj(_mixed(last, states, turns, rows, places))
    return decoder.norm(narrow + last.mlp(last.post_attention_layernorm(narrow)))


def _mixed(block: Any, states: Tensor, turns: tuple[Tensor, Tensor], rows: Tensor, places: Tensor) -> Tensor:
    """What the block's attention gives at these places, [n, heads * d]: their queries padded to a rectangle
    [B, q].
    """
    attention, seen = block.self_attn, block.input_layernorm(states)
    counts = torch.bincount(rows, minlength=len(states))
    ranks = torch.arange(len(rows), device=rows.device) - (counts.cumsum(0) - counts)[rows]
    asked = torch.zeros(len(states), int(counts.max()), dtype=torch.long, device=rows.device)
    asked[rows, ranks] = places
    chosen = seen.gather(1, asked[:, :, None].expand(-1, -1, seen.shape[2]))
    cosines, sines = (
        table.expand(len(states), -1, -1)[torch.arange(len(states), device=rows.device)[:, None], asked]
        for table in turns
    )
    query = _turned(_heads(attention, "q", chosen), cosines, sines)
    key, value = _turned(_heads(attention, "k", seen), *turns), _heads(attention, "v", seen)
    grouped = key.shape[1] != query.shape[1]
    if grouped and query.is_cuda:
        key, value = (
            repeat_for_heads(key, query.shape[1]),
            repeat_for_heads(value, query.shape[1]),
        )  # its frugal kernels take no groups with a mask
    mask = torch.arange(states.shape[1], device=rows.device) <= asked[:, None, :, None]
    options = {"scale": attention.scaling, "enable_gqa": grouped and not query.is_cuda}
    return (
        scaled_dot_product_attention(query, key, value, mask, **options)
        .transpose(1, 2)[rows, ranks]
        .flatten(1)
    )


def _heads(attention: Any, name: str, states: Tensor) -> Tensor:
    """Queries, keys or values [B, heads, n, d] of states [B, n, H], normed where the architecture norms
    them.
    """
    found = getattr(attention, f"{name}_proj")(states).unflatten(-1, (-1, attention.head_dim))
    norm = getattr(attention, f"{name}_norm", None)
    return (found if norm is None else norm(found)).transpose(1, 2)


def _turned(states: Tensor, cosines: Tensor, sines: Tensor) -> Tensor:
    """States [B, heads, n, d] turned by their positions, whose tables are [B, n, d]."""
    return states * cosines[:, None] + rotate_half(states) * sines[:, None]
