"""Training examples as a trunk with branches: an episode whose every step has a part that later steps do not
see.

The trunk is one append-only causal sequence (task, states, actions). A branch (demonstrations, reasoning,
answer) sees the trunk before it and itself, and nothing sees it afterwards. So an episode is one sequence
with each token computed once, and the model is trained on just what the engine computes when it rewinds a
branch (`components/language/engines/kept_cache.py`).
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from components.language.kernels.tree_attention import TreeLayout, lay_out_tree


@dataclass
class Segment:
    """A run of tokens; `loss[i]` says that `tokens[i]` is to be predicted."""

    tokens: list[int]
    loss: list[bool]
    branch: bool = False

    def __post_init__(self) -> None:
        """Refuse a `loss` that does not match `tokens`."""
        if len(self.tokens) != len(self.loss):
            raise ValueError(f"{len(self.tokens)} tokens with {len(self.loss)} loss flags; expected as many")


@dataclass
class Example:
    """Segments in order; those with `branch=False` together form the trunk."""

    segments: list[Segment]

    def __len__(self) -> int:
        """Tokens of all segments."""
        return sum(len(segment.tokens) for segment in self.segments)

    @property
    def depth(self) -> int:
        """Tokens of the longest sequence in it: the trunk up to a branch, and that branch."""
        trunk = deepest = 0
        for segment in self.segments:
            deepest = max(deepest, trunk + len(segment.tokens))
            trunk += 0 if segment.branch else len(segment.tokens)
        return deepest

    @property
    def has_branches(self) -> bool:
        """True if some token is in a branch."""
        return any(segment.branch and segment.tokens for segment in self.segments)


@dataclass
class Batch:
    """Examples padded on the right to L tokens, B rows.

    `input_ids`, `position_ids`, `predecessor` are int64 [B, L]; `loss_mask` and `real` (not padding) bool [B,
    L]. Token i of row b is predicted at `predecessor[b, i]`. `segments` int64 [B, L] tells the branches apart
    (-1: trunk). `tree` is None when no example has branches: then plain causal attention is right, since
    nothing looks at the padding behind it.
    """

    input_ids: Tensor
    position_ids: Tensor
    loss_mask: Tensor
    predecessor: Tensor
    real: Tensor
    segments: Tensor
    tree: TreeLayout | None

    def to(self, device: torch.device | str) -> Batch:
        """The same batch on another device."""
        return Batch(
            self.input_ids.to(device),
            self.position_ids.to(device),
            self.loss_mask.to(device),
            self.predecessor.to(device),
            self.real.to(device),
            self.segments.to(device),
            None if self.tree is None else self.tree.to(device),
        )

    @property
    def attention(self) -> Tensor | None:
        """`tree` as an additive fp32 mask [B, 1, L, L], for architectures without `tree_attention`: see what
        is earlier and trunk or the own branch.
        """
        if self.tree is None:
            return None
        length, device = self.segments.shape[1], self.segments.device
        keys, queries = self.segments[:, None, :], self.segments[:, :, None]
        later = torch.ones(length, length, dtype=torch.bool, device=device).triu(1)
        hidden = later | ((keys >= 0) & (keys != queries))
        return torch.zeros(hidden.shape, device=device).masked_fill_(hidden, float("-inf"))[:, None]


@dataclass
class _Layout:
    """One example laid out: for each token its position, predecessor and segment (-1: trunk)."""

    tokens: list[int]
    loss: list[bool]
    positions: list[int]
    predecessors: list[int]
    segments: list[int]


def _lay_out(example: Example) -> _Layout:
    out = _Layout([], [], [], [], [])
    trunk_length, trunk_last = 0, -1
    for number, segment in enumerate(example.segments):
        start, count = len(out.tokens), len(segment.tokens)
        if not count:
            continue
        if segment.loss[0] and trunk_last < 0:
            raise ValueError(
                "the first token of an example has loss, but nothing stands before it to predict it from"
            )
        out.tokens += segment.tokens
        out.loss += segment.loss
        out.positions += range(trunk_length, trunk_length + count)
        out.predecessors += [max(trunk_last, 0), *range(start, start + count - 1)]
        out.segments += [number if segment.branch else -1] * count
        if not segment.branch:
            trunk_length, trunk_last = trunk_length + count, start + count - 1
    return out


def collate(examples: Sequence[Example], pad_id: int) -> Batch:
    """Examples as one padded batch; see `Batch` for the shapes.

    Raises:
        ValueError: no example, or loss on a token that has nothing before it.
    """
    if not examples:
        raise ValueError("no example to collate; expected at least one")
    layouts = [_lay_out(example) for example in examples]
    shape = (len(layouts), max(len(layout.tokens) for layout in layouts))
    ids = torch.full(shape, pad_id, dtype=torch.long)
    positions, predecessor = torch.zeros(shape, dtype=torch.long), torch.zeros(shape, dtype=torch.long)
    loss, real = torch.zeros(shape, dtype=torch.bool), torch.zeros(shape, dtype=torch.bool)
    segments = torch.full(shape, -1, dtype=torch.long)
    for row, layout in enumerate(layouts):
        count = len(layout.tokens)
        ids[row, :count] = torch.tensor(layout.tokens, dtype=torch.long)
        positions[row, :count] = torch.tensor(layout.positions, dtype=torch.long)
        predecessor[row, :count] = torch.tensor(layout.predecessors, dtype=torch.long)
        loss[row, :count] = torch.tensor(layout.loss, dtype=torch.bool)
        segments[row, :count] = torch.tensor(layout.segments, dtype=torch.long)
        real[row, :count] = True
    tree = lay_out_tree(segments, real) if any(example.has_branches for example in examples) else None
    return Batch(ids, positions, loss, predecessor, real, segments, tree)


def batches(examples: Sequence[Example], batch_tokens: int, seed: int) -> Iterator[list[Example]]:
    """One pass over `examples` in batches of similar length, in an order drawn from `seed`.

    Padded, a batch has at most `batch_tokens` tokens (longest example times rows); a longer example comes
    alone.
    """
    rng = random.Random(seed)
    keyed = sorted(range(len(examples)), key=lambda index: (len(examples[index]), rng.random()))
    groups: list[list[Example]] = []
    group: list[Example] = []
    for index in keyed:
        # Sorted by length, so the newcomer is the longest.
        if group and len(examples[index]) * (len(group) + 1) > batch_tokens:
            groups.append(group)
            group = []
        group.append(examples[index])
    if group:
        groups.append(group)
    rng.shuffle(groups)
    yield from groups
