"""Attention over a trunk with branches that computes only what the tree lets a token see.

A dense mask over the packed sequence computes every pair of tokens and hides most: branches do not see each
other. Here the tokens are taken apart into runs (a branch, or a piece of the trunk). A run attends to the
trunk before it and causally to itself. Runs with a similar amount of trunk before them form a bucket, padded
to its longest. The result is the same.
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
TRUNK_RUN = 128  # tokens; the trunk is cut into runs of at most so many
BUCKETS = 12  # at most so many calls of the attention kernel a layer
HIDDEN = float("-inf")


@dataclass
class Run:
    """Consecutive tokens `own` that see the trunk tokens `before`; both are places in the flattened batch [B
    * L].
    """

    own: Tensor
    before: Tensor


@dataclass
class TreeLayout:
    """How to take a batch [B, L] apart into buckets and put it together again; bucket i has n runs of q
    queries and k keys.

    `queries`, `keys` int64: places in the flattened batch, of all buckets one after another (each [n * q] and
    [n * k]);
    `masks`: for each bucket the additive fp32 mask [n, 1, q, k]; `places` int64 [B * L]: where in `queries`
    each token stands. Padding stands at place 0 of everything, and nothing depends on it.
    """

    queries: Tensor
    keys: Tensor
    masks: list[Tensor]
    places: Tensor

    def to(self, device: torch.device | str) -> TreeLayout:
        """The same layout on another device."""
        masks = [mask.to(device) for mask in self.masks]
        return TreeLayout(self.queries.to(device), self.keys.to(device), masks, self.places.to(device))


def lay_out_tree(segments: Tensor, real: Tensor) -> TreeLayout:
    """The layout of a batch, from the segment of each token [B, L] (-1: trunk) and which tokens are no
    padding [B, L].
    """
    length = segments.shape[1]
    runs: list[Run] = []
    for row in range(len(segments)):
        runs += _runs(segments[row][real[row]], row * length)
    runs.sort(key=lambda run: (len(run.before), len(run.own)))
    size = -(-len(runs) // BUCKETS)
    buckets = [runs[start : start + size] for start in range(0, len(runs), size)]
    queries, keys, masks = zip(*map(_bucket, buckets), strict=True)
    places = torch.zeros(segments.numel(), dtype=torch.long)
    all_queries = torch.cat(queries)
    taken = all_queries >= 0
    places[all_queries[taken]] = taken.nonzero()[:, 0]
    return TreeLayout(all_queries.clamp_(min=0), torch.cat(keys), list(masks), places)


def _runs(segments: Tensor, offset: int) -> list[Run]:
    """The runs of one row, whose first token stands at `offset` of the flattened batch."""
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


def _bucket(runs: Sequence[Run]) -> tuple[Tensor, Tensor, Tensor]:
    """Queries [n * q] (-1: padding), keys [n * k] and mask [n, 1, q, k] of a bucket; a run's own keys stand
    first.

    So every query, padding included, sees the very first key.
    """
    count, own = len(runs), max(len(run.own) for run in runs)
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
    """Self-attention of query [B, H, L, d] over key, value [B, K, L, d] with H a multiple of K; [B, L, H, d].

    `tree` is the layout of the batch, which the decoder hands on from its caller; `attention_mask` is not
    looked at.
    """
    rows, heads, length, width = query.shape
    grouped = key.shape[1] != heads
    sizes = [(mask.shape[0], mask.shape[2], mask.shape[3]) for mask in tree.masks]
    queries = _take(query, tree.queries).split([n * q for n, q, _ in sizes])
    keys = _take(key, tree.keys).split([n * k for n, _, k in sizes])
    values = _take(value, tree.keys).split([n * k for n, _, k in sizes])
    parts = []
    for (n, q, _), mask, *states in zip(sizes, tree.masks, queries, keys, values, strict=True):
        asked, seen, shown = (
            part.view(n, -1, part.shape[1] // width, width).transpose(1, 2) for part in states
        )
        if grouped and query.is_cuda:
            seen, shown = (
                repeat_for_heads(seen, heads),
                repeat_for_heads(shown, heads),
            )  # the kernels that spare memory there take no groups with a mask
        mixed = scaled_dot_product_attention(
            asked, seen, shown, mask, dropout, scale=scaling, enable_gqa=grouped and not query.is_cuda
        )
        parts.append(mixed.transpose(1, 2).reshape(n * q, -1))
    return embedding(tree.places, torch.cat(parts)).view(rows, length, heads, -1), None


def _take(states: Tensor, places: Tensor) -> Tensor:
    """Of states [B, heads, L, d] those at the places of the flattened batch: [places, heads * d].

    A lookup in an embedding, since its backward pass is quicker than that of an index.
    """
    return embedding(places, states.transpose(1, 2).flatten(2).flatten(0, 1))
