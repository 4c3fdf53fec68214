"""Attention over a trunk with branches that computes only the pairs of tokens that see each other.

A dense mask over the packed sequence computes every pair and hides most of them, because branches do not see
each other. Here the tokens are divided into runs: a branch, or a piece of the trunk. A run attends to the
trunk before it, and causally to itself. Runs with a similar amount of trunk before them form a bucket, padded
to its longest run. The result is the same. `components/language/transformers_setup.py` registers the function
with transformers.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import embedding, scaled_dot_product_attention

from components.language.kernels.cache_attention import repeat_for_heads

TREE = "tree"
"""The name under which `tree_attention` is registered."""
TRUNK_RUN = 128
"""Most tokens of a run of the trunk."""
BUCKETS = 12
"""Most calls of the attention kernel in one layer."""
HIDDEN = float("-inf")


@dataclass
class Run:
    """Consecutive tokens `own` that see the trunk tokens `before`.

    Both are places in the flattened batch [B * L].
    """

    own: Tensor
    before: Tensor


@dataclass
class TreeLayout:
    """How to divide a batch [B, L] into buckets and put the results together again.

    Bucket i has n runs of q queries and k keys. `queries` and `keys` are int64 places in the flattened batch,
    of all buckets one after the other: n * q and n * k each. `masks` holds the additive fp32 mask
    [n, 1, q, k] of each bucket. `places` int64 [B * L] is the position of each token in `queries`. Padding
    has place 0 everywhere, and no result depends on it.
    """

    queries: Tensor
    keys: Tensor
    masks: list[Tensor]
    places: Tensor

    def to(self, device: torch.device | str) -> TreeLayout:
        """The same layout on another device. The copy to a GPU is begun, and not waited for."""
        is_gpu = torch.device(device).type == "cuda"

        def move(tensor: Tensor) -> Tensor:
            return tensor.pin_memory().to(device, non_blocking=True) if is_gpu else tensor.to(device)

        masks = [move(mask) for mask in self.masks]
        return TreeLayout(move(self.queries), move(self.keys), masks, move(self.places))


def lay_out_tree(segments: Tensor, real: Tensor) -> TreeLayout:
    """The layout of a batch.

    Args:
        segments: int64 [B, L], the segment of each token; -1 is the trunk.
        real: bool [B, L], True where a token is no padding.
    """
    length = segments.shape[1]
    runs: list[Run] = []
    for row in range(len(segments)):
        runs += _runs_of_row(segments[row][real[row]], row * length)
    runs.sort(key=lambda run: (len(run.before), len(run.own)))
    size = -(-len(runs) // BUCKETS)
    buckets = [runs[start : start + size] for start in range(0, len(runs), size)]
    queries, keys, masks = zip(*map(_lay_out_bucket, buckets), strict=True)
    places = torch.zeros(segments.numel(), dtype=torch.long)
    all_queries = torch.cat(queries)
    is_token = all_queries >= 0
    places[all_queries[is_token]] = is_token.nonzero()[:, 0]
    return TreeLayout(all_queries.clamp_(min=0), torch.cat(keys), list(masks), places)


def _runs_of_row(segments: Tensor, offset: int) -> list[Run]:
    """The runs of one row, whose first token has place `offset` in the flattened batch."""
    trunk = (segments < 0).nonzero()[:, 0] + offset
    runs = [Run(trunk[start : start + TRUNK_RUN], trunk[:start]) for start in range(0, len(trunk), TRUNK_RUN)]
    values, counts = segments.unique_consecutive(return_counts=True)
    start = before = 0
    for value, count in zip(values.tolist(), counts.tolist(), strict=True):
        if value < 0:
            before += count
        else:
            runs.append(Run(torch.arange(start, start + count) + offset, trunk[:before]))
        start += count
    return runs


def _lay_out_bucket(runs: Sequence[Run]) -> tuple[Tensor, Tensor, Tensor]:
    """Queries [n * q] (-1: padding), keys [n * k] and mask [n, 1, q, k] of a bucket.

    A run's own keys come first, so that every query, padding included, sees the first key.
    """
    count = len(runs)
    own = max(len(run.own) for run in runs)
    before = max(len(run.before) for run in runs)
    queries = torch.full((count, own), -1)
    keys = torch.zeros(count, own + before, dtype=torch.long)
    mask = torch.full((count, own, own + before), HIDDEN)
    mask[:, :, :own].triu_(1)
    mask[:, :, :own].masked_fill_(torch.ones(own, own, dtype=torch.bool).tril(), 0.0)
    for number, run in enumerate(runs):
        queries[number, : len(run.own)] = run.own
        keys[number, : len(run.own)] = run.own
        keys[number, own : own + len(run.before)] = run.before
        mask[number, :, own : own + len(run.before)] = 0.0
    return queries.flatten(), keys.flatten(), mask[:, None]


def tree_attention(
    module: torch.nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    scaling: float | None = None,
    dropout: float = 0.0,
    *,
    tree: TreeLayout,
    **kwargs: Any,
) -> tuple[Tensor, None]:
    """Self-attention within the tree.

    Args:
        module: unused; part of the interface of transformers.
        query: [B, H, L, d].
        key: [B, K, L, d], with H a multiple of K.
        value: as `key`.
        attention_mask: unused.
        scaling: factor of the scores; None is 1 / sqrt(d).
        dropout: probability that an attention weight becomes 0.
        tree: the layout of the batch; the decoder passes it on from its caller.
        kwargs: further settings of the architecture, unused.

    Returns:
        The mixed values [B, L, H, d], and no attention weights.
    """
    rows, heads, length, width = query.shape
    is_grouped = key.shape[1] != heads
    sizes = [(mask.shape[0], mask.shape[2], mask.shape[3]) for mask in tree.masks]
    queries = _take(query, tree.queries).split([n * q for n, q, _ in sizes])
    keys = _take(key, tree.keys).split([n * k for n, _, k in sizes])
    values = _take(value, tree.keys).split([n * k for n, _, k in sizes])
    parts = []
    for (n, q, _), mask, *states in zip(sizes, tree.masks, queries, keys, values, strict=True):
        run_queries, run_keys, run_values = (
            part.view(n, -1, part.shape[1] // width, width).transpose(1, 2) for part in states
        )
        if is_grouped and query.is_cuda:
            # The memory-saving CUDA kernels take no groups together with a mask.
            run_keys = repeat_for_heads(run_keys, heads)
            run_values = repeat_for_heads(run_values, heads)
        enable_gqa = is_grouped and not query.is_cuda
        mixed = scaled_dot_product_attention(
            run_queries, run_keys, run_values, mask, dropout, scale=scaling, enable_gqa=enable_gqa
        )
        parts.append(mixed.transpose(1, 2).reshape(n * q, -1))
    return embedding(tree.places, torch.cat(parts)).view(rows, length, heads, -1), None


def _take(states: Tensor, places: Tensor) -> Tensor:
    """The states [places, heads * d] at places of the flattened batch, of `states` [B, heads, L, d].

    An embedding lookup, because its backward pass is faster than that of an index.
    """
    return embedding(places, states.transpose(1, 2).flatten(2).flatten(0, 1))
