"""Training examples as a trunk with branches, and their batches.

The trunk is one causal sequence that only grows: task, states, actions of an episode. A branch holds what
later steps do not see: demonstrations, reasoning, answer. It attends to the trunk before it and to itself;
nothing attends to it afterwards. So an episode is one sequence whose tokens are computed once each. The model
is trained on exactly what the engine computes when it rewinds a branch
(`components/language/engines/kept_cache.py`).
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
    """Consecutive tokens; `loss[i]` is the weight in the loss of predicting `tokens[i]`, 0 or False: none."""

    tokens: list[int]
    loss: Sequence[float]
    branch: bool = False

    def __post_init__(self) -> None:
        """Raise ValueError if `loss` and `tokens` differ in length."""
        if len(self.tokens) != len(self.loss):
            raise ValueError(f"{len(self.tokens)} tokens with {len(self.loss)} loss flags; expected as many")

    @property
    def predicted(self) -> int:
        """How many of its tokens are to be predicted."""
        return sum(bool(weight) for weight in self.loss)


@dataclass
class Example:
    """Segments in order. Those with `branch=False` together form the trunk."""

    segments: list[Segment]

    def __len__(self) -> int:
        """The token count of all segments."""
        return sum(len(segment.tokens) for segment in self.segments)

    @property
    def depth(self) -> int:
        """The token count of its longest sequence: a branch and the trunk before it."""
        trunk = deepest = 0
        for segment in self.segments:
            deepest = max(deepest, trunk + len(segment.tokens))
            trunk += 0 if segment.branch else len(segment.tokens)
        return deepest

    @property
    def has_branches(self) -> bool:
        """True if a branch has a token."""
        return any(segment.branch and segment.tokens for segment in self.segments)


@dataclass
class Batch:
    """B examples, padded on the right to L tokens.

    `input_ids`, `position_ids` and `predecessor` are int64 [B, L]. Token i of row b is predicted at position
    `predecessor[b, i]`. `real` (not padding) is bool [B, L]. `rows` and `columns` int64 [n] are the places of
    the n predicted tokens, row by row, `loss_weights` fp32 [n] their weights; `widest` is the most of a row,
    known without asking the device. `segments` int64 [B, L] numbers
    the branches; -1 is the trunk. `tree` is None if no example has branches. Plain causal attention is then
    correct, because no token attends to the padding after it.
    """

    input_ids: Tensor
    position_ids: Tensor
    rows: Tensor
    columns: Tensor
    loss_weights: Tensor
    predecessor: Tensor
    real: Tensor
    segments: Tensor
    tree: TreeLayout | None
    widest: int

    def to(self, device: torch.device | str) -> Batch:
        """The same batch on another device. The copy to a GPU is begun, and not waited for."""
        is_gpu = torch.device(device).type == "cuda"

        def move(tensor: Tensor) -> Tensor:
            return tensor.pin_memory().to(device, non_blocking=True) if is_gpu else tensor.to(device)

        return Batch(
            move(self.input_ids),
            move(self.position_ids),
            move(self.rows),
            move(self.columns),
            move(self.loss_weights),
            move(self.predecessor),
            move(self.real),
            move(self.segments),
            None if self.tree is None else self.tree.to(device),
            self.widest,
        )

    @property
    def attention(self) -> Tensor | None:
        """`tree` as an additive fp32 mask [B, 1, L, L], for architectures without `tree_attention`.

        A token sees earlier tokens of the trunk and of its own branch.
        """
        if self.tree is None:
            return None
        length = self.segments.shape[1]
        device = self.segments.device
        keys = self.segments[:, None, :]
        queries = self.segments[:, :, None]
        is_later = torch.ones(length, length, dtype=torch.bool, device=device).triu(1)
        is_hidden = is_later | ((keys >= 0) & (keys != queries))
        return torch.zeros(is_hidden.shape, device=device).masked_fill_(is_hidden, float("-inf"))[:, None]


@dataclass
class _Layout:
    """One example as flat lists: for each token its position, predecessor and segment (-1: trunk)."""

    tokens: list[int]
    loss: list[float]
    positions: list[int]
    predecessors: list[int]
    segments: list[int]


def _lay_out(example: Example) -> _Layout:
    """The flat lists of `example`. Raises ValueError if its first token has loss."""
    layout = _Layout([], [], [], [], [])
    trunk_length = 0
    trunk_last = -1
    for number, segment in enumerate(example.segments):
        start = len(layout.tokens)
        count = len(segment.tokens)
        if not count:
            continue
        if segment.loss[0] and trunk_last < 0:
            raise ValueError(
                "the first token of an example has loss, but there is no token before it to predict it from"
            )
        layout.tokens += segment.tokens
        layout.loss += segment.loss
        layout.positions += range(trunk_length, trunk_length + count)
        layout.predecessors += [max(trunk_last, 0), *range(start, start + count - 1)]
        layout.segments += [number if segment.branch else -1] * count
        if not segment.branch:
            trunk_length += count
            trunk_last = start + count - 1
    return layout


def collate(examples: Sequence[Example], pad_id: int) -> Batch:
    """`examples` as one padded batch; see `Batch` for the shapes.

    Raises:
        ValueError: there is no example, or a token with loss has no token before it.
    """
    if not examples:
        raise ValueError("no example to collate; expected at least one")
    layouts = [_lay_out(example) for example in examples]
    shape = (len(layouts), max(len(layout.tokens) for layout in layouts))
    ids = torch.full(shape, pad_id, dtype=torch.long)
    positions = torch.zeros(shape, dtype=torch.long)
    predecessor = torch.zeros(shape, dtype=torch.long)
    weights = torch.zeros(shape)
    real = torch.zeros(shape, dtype=torch.bool)
    segments = torch.full(shape, -1, dtype=torch.long)
    for row, layout in enumerate(layouts):
        count = len(layout.tokens)
        ids[row, :count] = torch.tensor(layout.tokens, dtype=torch.long)
        positions[row, :count] = torch.tensor(layout.positions, dtype=torch.long)
        predecessor[row, :count] = torch.tensor(layout.predecessors, dtype=torch.long)
        weights[row, :count] = torch.tensor(layout.loss, dtype=torch.float32)
        segments[row, :count] = torch.tensor(layout.segments, dtype=torch.long)
        real[row, :count] = True
    tree = lay_out_tree(segments, real) if any(example.has_branches for example in examples) else None
    # Found here and not on the device: a GPU would have to be waited for.
    rows, columns = (weights > 0).nonzero(as_tuple=True)
    widest = int(torch.bincount(rows, minlength=1).max())
    return Batch(
        ids, positions, rows, columns, weights[rows, columns], predecessor, real, segments, tree, widest
    )


def batches(examples: Sequence[Example], batch_tokens: int, seed: int) -> Iterator[list[Example]]:
    """One pass over `examples` in batches of similar length, in an order drawn from `seed`.

    With padding a batch has at most `batch_tokens` tokens: its longest example times its rows. A longer
    example is a batch of its own.
    """
    rng = random.Random(seed)
    by_length = sorted(range(len(examples)), key=lambda index: (len(examples[index]), rng.random()))
    all_batches: list[list[Example]] = []
    batch: list[Example] = []
    for index in by_length:
        # Examples come sorted by length, so the new one is the longest of the batch.
        if batch and len(examples[index]) * (len(batch) + 1) > batch_tokens:
            all_batches.append(batch)
            batch = []
        batch.append(examples[index])
    if batch:
        all_batches.append(batch)
    rng.shuffle(all_batches)
    yield from all_batches
