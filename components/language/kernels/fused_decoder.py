"""A Llama-shaped decoder over a kept cache with its small operations taken together: the same numbers, in
half the time on a CPU.

At a million parameters most of a pass is not arithmetic. Three things are done differently from transformers:
queries, keys and values are one product, and so are the two halves of the SwiGLU; the tokens of a pass stand
one after the other without padding, and each row attends to what its own cache holds; a long prompt goes
through in passes that fit into the processor's cache. What does not look exactly like such a decoder
(adapters, another architecture, another device) is left to transformers.
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
MOST_WEIGHTS = 50_000_000  # a larger model gains little, and the joined weights are a second copy
PASS_TOKENS = 1024


class Span(NamedTuple):
    """Consecutive tokens of one row in a pass: the row's slot of the cache, the position of the first token,
    and how many.
    """

    slot: int
    start: int
    length: int


@dataclass
class _Block:
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
    """The weights of `model` as they are now, joined; made anew for each session, since training changes them
    in between.
    """

    def __init__(self, model: PreTrainedModel) -> None:
        decoder: Any = model.get_decoder()
        config: Any = model.config
        head: Any = model.get_output_embeddings()
        self.heads, self.key_heads = config.num_attention_heads, config.num_key_value_heads
        self.width = decoder.layers[0].self_attn.head_dim
        self.scale, self.epsilon = decoder.layers[0].self_attn.scaling, config.rms_norm_eps
        self.tokens, self.norm = decoder.embed_tokens.weight, decoder.norm.weight
        self.head, self.head_bias = head.weight, head.bias
        with torch.no_grad():
            self._blocks = [_join(layer) for layer in decoder.layers]
        self._rotary = decoder.rotary_emb
        self._turns = self._sines = self._hidden = torch.zeros(0, 0)

    def logits(self, ids: Tensor, spans: Sequence[Span], cache: KeptCache) -> Tensor:
        """Compute the tokens of `spans`, `ids` int64 [T] one after the other, into the cache; fp32 logits
        [spans, V] behind each span.
        """
        single = all(span.length == 1 and span.slot == place for place, span in enumerate(spans))
        starts, lengths = (
            torch.tensor([span.start for span in spans]),
            torch.tensor([span.length for span in spans]),
        )
        slots = torch.tensor([span.slot for span in spans])
        positions = starts
        if not single:
            ends = lengths.cumsum(0)
            positions = torch.arange(len(ids)) + (starts - ends + lengths).repeat_interleave(lengths)
            slots = slots.repeat_interleave(lengths)
        cache.aim_at(slots, positions, len(spans))
        self._reach(cache.reach)
        turns, sines = self._turns[positions][:, None], self._sines[positions][:, None]
        mask = self._hidden[positions, None, None, : cache.reach] if single else None
        states = embedding(ids, self.tokens)
        for block, layer in zip(self._blocks, cache.kept, strict=True):
            joined = linear(
                rms_norm(states, states.shape[1:], block.before_attention, self.epsilon),
                block.joined,
                block.joined_bias,
            )
            queries, keys, values = self._turned(block, joined, turns, sines)
            layer.write(keys, values)
            mixed = (
                self._batched(queries, layer, mask)
                if mask is not None
                else self._by_row(queries, layer, spans)
            )
            states = torch.addmm(states, mixed, block.out)
            gate, up = linear(
                rms_norm(states, states.shape[1:], block.before_mlp, self.epsilon), block.gate_up
            ).chunk(2, dim=1)
            states = torch.addmm(states, silu(gate, inplace=True).mul_(up), block.down)
        if not single:
            states = states[ends - 1]
        return linear(rms_norm(states, states.shape[1:], self.norm, self.epsilon), self.head, self.head_bias)

    def _turned(
        self, block: _Block, joined: Tensor, turns: Tensor, sines: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Of joined [T, (H + 2 K) d] the queries [T, H, d] and keys [T, K, d], turned by their positions, and
        the values [T, K, d].
        """
        heads = joined.view(len(joined), -1, self.width)
        turned, values = heads[:, : -self.key_heads], heads[:, -self.key_heads :]
        if block.query_norm is not None and block.key_norm is not None:
            shape = (self.width,)
            asked = rms_norm(turned[:, : self.heads], shape, block.query_norm, self.epsilon)
            turned = torch.cat(
                (asked, rms_norm(turned[:, self.heads :], shape, block.key_norm, self.epsilon)), dim=1
            )
        first, second = turned.chunk(2, dim=2)
        turned = torch.addcmul(turned * turns, torch.cat((second, first), dim=2), sines)
        return turned[:, : self.heads], turned[:, self.heads :], values

    def _batched(self, queries: Tensor, layer: Any, mask: Tensor) -> Tensor:
        """One new token of each of the first rows: the query heads of a group stand side by side as if they
        were tokens.
        """
        rows = len(queries)
        keys, values = layer.window()
        packed = queries.reshape(rows, self.key_heads, -1, self.width)
        return scaled_dot_product_attention(packed, keys, values, attn_mask=mask, scale=self.scale).reshape(
            rows, -1
        )

    def _by_row(self, queries: Tensor, layer: Any, spans: Sequence[Span]) -> Tensor:
        """Each span against what its row holds, no position more."""
        mixed, done = torch.empty_like(queries), 0
        for span in spans:
            end, reach = done + span.length, span.start + span.length
            asked = queries[None, done:end].transpose(1, 2)
            keys, values = layer.keys[None, span.slot, :, :reach], layer.values[None, span.slot, :, :reach]
            mask = self._hidden[span.start : reach, :reach]
            grouped = self.heads != self.key_heads
            seen = scaled_dot_product_attention(
                asked, keys, values, attn_mask=mask, scale=self.scale, enable_gqa=grouped
            )
            mixed[done:end] = seen[0].transpose(0, 1)
            done = end
        return mixed.flatten(1)

    def _reach(self, reach: int) -> None:
        """Tables up to position `reach`: cosines, sines with the sign of the half they are for, and the
        causal mask.
        """
        if reach <= len(self._hidden):
            return
        size = max(256, 1 << (reach - 1).bit_length())
        cosines, sines = self._rotary(self.tokens, torch.arange(size)[None])
        self._turns, self._sines = (
            cosines[0],
            torch.cat((-sines[0, :, : self.width // 2], sines[0, :, self.width // 2 :]), dim=1),
        )
        self._hidden = _causal(size)


@functools.cache
def _causal(size: int) -> Tensor:
    """The additive mask [size, size] that hides what comes later; one for all sessions of the process."""
    return torch.full((size, size), float("-inf")).triu_(1)


def can_fuse(model: PreTrainedModel) -> bool:
    """True if `FusedDecoder` computes what `model` does: plain layers of a known architecture, fp32, on a
    CPU, and small.
    """
    config: Any = model.config
    if (
        config.model_type not in FAMILIES
        or config.hidden_act != "silu"
        or model.device.type != "cpu"
        or model.dtype != torch.float32
    ):
        return False
    if (config.rope_parameters or {}).get(
        "rope_type", "default"
    ) not in ROTARY or model.num_parameters() > MOST_WEIGHTS:
        return False
    decoder: Any = model.get_decoder()
    linears = [part for layer in decoder.layers for part in (*_projections(layer), layer.self_attn.o_proj)]
    biased = [
        part
        for layer in decoder.layers
        for part in (*_projections(layer)[3:], layer.self_attn.o_proj)
        if part.bias is not None
    ]
    return all(type(part) is nn.Linear for part in [*linears, model.get_output_embeddings()]) and not biased


def _projections(layer: Any) -> tuple[Any, ...]:
    attention, mlp = layer.self_attn, layer.mlp
    return attention.q_proj, attention.k_proj, attention.v_proj, mlp.gate_proj, mlp.up_proj, mlp.down_proj


def _join(layer: Any) -> _Block:
    query, key, value, gate, up, down = _projections(layer)
    biases = [part.bias for part in (query, key, value)]
    norms = [getattr(layer.self_attn, name, None) for name in ("q_norm", "k_norm")]
    return _Block(
        before_attention=layer.input_layernorm.weight,
        joined=torch.cat((query.weight, key.weight, value.weight)),
        joined_bias=torch.cat(biases) if biases[0] is not None else None,
        query_norm=norms[0].weight if norms[0] is not None else None,
        key_norm=norms[1].weight if norms[1] is not None else None,
        out=layer.self_attn.o_proj.weight.T,
        before_mlp=layer.post_attention_layernorm.weight,
        gate_up=torch.cat((gate.weight, up.weight)),
        down=down.weight.T,
    )
