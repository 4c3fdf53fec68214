"""A Llama-shaped decoder over a kept cache with joined operations: same numbers, half the time on a CPU.

With a million parameters most of a pass is overhead, not arithmetic. Three things differ from transformers:

1. Queries, keys and values are one matrix product, and so are the two halves of the SwiGLU.
2. The tokens of a pass stand one after the other without padding. Each row attends only to its own cache.
3. A long prompt is computed in passes that fit into the processor's cache.

A model that is not exactly such a decoder (adapters, another architecture, another device) is left to
transformers; see `can_fuse`.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.functional import embedding, linear, rms_norm, scaled_dot_product_attention, silu
from transformers import PreTrainedModel

from components.language.engines.key_value_cache import KeptCache

FAMILIES = frozenset({"llama", "qwen2", "qwen3", "mistral"})
ROTARY = frozenset({"default", "linear", "llama3"})
MOST_WEIGHTS = 50_000_000
"""Largest model that is fused: a larger one gains little, and the joined weights are a second copy."""
PASS_TOKENS = 1024
"""Most tokens of a pass over a prompt."""


class Span(NamedTuple):
    """Consecutive tokens of one row: its slot in the cache, the first token's position, the token count."""

    slot: int
    start: int
    length: int


@dataclass
class _Block:
    """The weights of one layer, joined."""

    before_attention: Tensor
    joined: Tensor
    joined_bias: Tensor | None
    query_norm: Tensor | None
    key_norm: Tensor | None
    out: Tensor
    before_mlp: Tensor
    gate_up: Tensor
    down: Tensor


class FusedDecoder:
    """The joined weights of `model` at this moment.

    Each session makes its own, because training changes the weights between sessions.
    """

    def __init__(self, model: PreTrainedModel) -> None:
        decoder: Any = model.get_decoder()
        config: Any = model.config
        head: Any = model.get_output_embeddings()
        self.heads = config.num_attention_heads
        self.key_heads = config.num_key_value_heads
        self.width = decoder.layers[0].self_attn.head_dim
        self.scale = decoder.layers[0].self_attn.scaling
        self.epsilon = config.rms_norm_eps
        self.tokens = decoder.embed_tokens.weight
        self.norm = decoder.norm.weight
        self.head = head.weight
        self.head_bias = head.bias
        with torch.no_grad():
            self._blocks = [_join(layer) for layer in decoder.layers]
        self._rotary = decoder.rotary_emb
        self._cosines = self._sines = self._causal_mask = torch.zeros(0, 0)

    def logits(self, ids: Tensor, spans: Sequence[Span], cache: KeptCache) -> Tensor:
        """Compute the tokens of `spans` into the cache.

        Args:
            ids: int64 [T], the tokens of all spans one after the other.
            spans: where each run of tokens belongs.
            cache: takes the keys and values.

        Returns:
            fp32 logits [spans, V] after the last token of each span.
        """
        is_one_token_each = all(span.length == 1 and span.slot == place for place, span in enumerate(spans))
        starts = torch.tensor([span.start for span in spans])
        lengths = torch.tensor([span.length for span in spans])
        slots = torch.tensor([span.slot for span in spans])
        positions = starts
        if not is_one_token_each:
            ends = lengths.cumsum(0)
            positions = torch.arange(len(ids)) + (starts - ends + lengths).repeat_interleave(lengths)
            slots = slots.repeat_interleave(lengths)
        cache.set_token_targets(slots, positions, len(spans))
        self._extend_tables(cache.reach)
        cosines = self._cosines[positions][:, None]
        sines = self._sines[positions][:, None]
        mask = self._causal_mask[positions, None, None, : cache.reach] if is_one_token_each else None
        states = embedding(ids, self.tokens)
        for block, layer in zip(self._blocks, cache.kept, strict=True):
            normed = rms_norm(states, states.shape[1:], block.before_attention, self.epsilon)
            joined = linear(normed, block.joined, block.joined_bias)
            queries, keys, values = self._split_and_rotate(block, joined, cosines, sines)
            layer.write(keys, values)
            mixed = (
                self._attend_batched(queries, layer, mask)
                if mask is not None
                else self._attend_by_row(queries, layer, spans)
            )
            states = torch.addmm(states, mixed, block.out)
            normed = rms_norm(states, states.shape[1:], block.before_mlp, self.epsilon)
            gate, up = linear(normed, block.gate_up).chunk(2, dim=1)
            states = torch.addmm(states, silu(gate, inplace=True).mul_(up), block.down)
        if not is_one_token_each:
            states = states[ends - 1]
        return linear(rms_norm(states, states.shape[1:], self.norm, self.epsilon), self.head, self.head_bias)

    def _split_and_rotate(
        self, block: _Block, joined: Tensor, cosines: Tensor, sines: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Queries [T, H, d], keys and values [T, K, d] of `joined` [T, (H + 2 K) d].

        Queries and keys are normed where the architecture does that, then rotated by their positions.
        """
        heads = joined.view(len(joined), -1, self.width)
        rotated = heads[:, : -self.key_heads]
        values = heads[:, -self.key_heads :]
        if block.query_norm is not None and block.key_norm is not None:
            shape = (self.width,)
            queries = rms_norm(rotated[:, : self.heads], shape, block.query_norm, self.epsilon)
            keys = rms_norm(rotated[:, self.heads :], shape, block.key_norm, self.epsilon)
            rotated = torch.cat((queries, keys), dim=1)
        first_half, second_half = rotated.chunk(2, dim=2)
        rotated = torch.addcmul(rotated * cosines, torch.cat((second_half, first_half), dim=2), sines)
        return rotated[:, : self.heads], rotated[:, self.heads :], values

    def _attend_batched(self, queries: Tensor, layer: Any, mask: Tensor) -> Tensor:
        """Attention [B, H d] of one new token of each of the first B rows.

        The query heads of a group are passed as if they were tokens, so that they share the group's keys.
        """
        rows = len(queries)
        keys, values = layer.window()
        packed = queries.reshape(rows, self.key_heads, -1, self.width)
        return scaled_dot_product_attention(packed, keys, values, attn_mask=mask, scale=self.scale).reshape(
            rows, -1
        )

    def _attend_by_row(self, queries: Tensor, layer: Any, spans: Sequence[Span]) -> Tensor:
        """Attention [T, H d] of each span over exactly the positions that its row holds."""
        mixed = torch.empty_like(queries)
        done = 0
        for span in spans:
            end = done + span.length
            reach = span.start + span.length
            span_queries = queries[None, done:end].transpose(1, 2)
            keys = layer.keys[None, span.slot, :, :reach]
            values = layer.values[None, span.slot, :, :reach]
            mask = self._causal_mask[span.start : reach, :reach]
            is_grouped = self.heads != self.key_heads
            span_mixed = scaled_dot_product_attention(
                span_queries, keys, values, attn_mask=mask, scale=self.scale, enable_gqa=is_grouped
            )
            mixed[done:end] = span_mixed[0].transpose(0, 1)
            done = end
        return mixed.flatten(1)

    def _extend_tables(self, reach: int) -> None:
        """Make the rotary tables and the causal mask cover `reach` positions.

        The sines carry the sign of the half that they multiply.
        """
        if reach <= len(self._causal_mask):
            return
        size = max(256, 1 << (reach - 1).bit_length())
        cosines, sines = self._rotary(self.tokens, torch.arange(size)[None])
        self._cosines = cosines[0]
        self._sines = torch.cat((-sines[0, :, : self.width // 2], sines[0, :, self.width // 2 :]), dim=1)
        self._causal_mask = _causal_mask(size)


@functools.cache
def _causal_mask(size: int) -> Tensor:
    """The additive mask [size, size] that hides later positions; one for all sessions of the process."""
    return torch.full((size, size), float("-inf")).triu_(1)


def can_fuse(model: PreTrainedModel) -> bool:
    """True if `FusedDecoder` computes what `model` does.

    That holds for a known architecture with plain layers, small, in fp32, on a CPU.
    """
    config: Any = model.config
    if (
        config.model_type not in FAMILIES
        or config.hidden_act != "silu"
        or model.device.type != "cpu"
        or model.dtype != torch.float32
    ):
        return False
    rope_type = (config.rope_parameters or {}).get("rope_type", "default")
    if rope_type not in ROTARY or model.num_parameters() > MOST_WEIGHTS:
        return False
    decoder: Any = model.get_decoder()
    projections = [
        part for layer in decoder.layers for part in (*_projections(layer), layer.self_attn.o_proj)
    ]
    has_unjoined_bias = any(
        part.bias is not None
        for layer in decoder.layers
        for part in (*_projections(layer)[3:], layer.self_attn.o_proj)
    )
    are_plain = all(type(part) is nn.Linear for part in [*projections, model.get_output_embeddings()])
    return are_plain and not has_unjoined_bias


def _projections(layer: Any) -> tuple[Any, ...]:
    """The linear layers for query, key, value, gate, up and down."""
    attention = layer.self_attn
    mlp = layer.mlp
    return attention.q_proj, attention.k_proj, attention.v_proj, mlp.gate_proj, mlp.up_proj, mlp.down_proj


def _join(layer: Any) -> _Block:
    """The joined weights of one transformers layer."""
    query, key, value, gate, up, down = _projections(layer)
    biases = [part.bias for part in (query, key, value)]
    query_norm, key_norm = (getattr(layer.self_attn, name, None) for name in ("q_norm", "k_norm"))
    return _Block(
        before_attention=layer.input_layernorm.weight,
        joined=torch.cat((query.weight, key.weight, value.weight)),
        joined_bias=torch.cat(biases) if biases[0] is not None else None,
        query_norm=query_norm.weight if query_norm is not None else None,
        key_norm=key_norm.weight if key_norm is not None else None,
        out=layer.self_attn.o_proj.weight.T,
        before_mlp=layer.post_attention_layernorm.weight,
        gate_up=torch.cat((gate.weight, up.weight)),
        down=down.weight.T,
    )
