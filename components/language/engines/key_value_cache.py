"""A key-value cache that is never copied: rows of their own lengths in one preallocated block a layer.

Stock caches concatenate, that is copy, everything at each token. Here new keys and values are written in
place at each row's own end. Positions at or behind a row's end may hold anything finite: the mask hides them.
"""

from __future__ import annotations

from typing import Any
from weakref import proxy

import torch
from torch import Tensor
from transformers.cache_utils import Cache, CacheLayerMixin


class KeptLayer(CacheLayerMixin):
    """Keys and values of one layer: [rows, key-value heads, capacity, head width], of which a window is in
    use.
    """

    def __init__(self, cache: KeptCache) -> None:
        super().__init__()
        self.cache = proxy(
            cache
        )  # no cycle: a session's memory goes with it, without waiting for the garbage collector

    def lazy_initialization(self, key_states: Tensor, value_states: Tensor) -> None:
        """Allocate, once the widths are known. Zeros: what lies behind the mask must be finite."""
        _, heads, _, width = key_states.shape
        shape = (self.cache.rows, heads, self.cache.capacity)
        self.keys = key_states.new_zeros(*shape, width)
        self.values = value_states.new_zeros(*shape, value_states.shape[-1])
        self.is_initialized = True

    def update(
        self, key_states: Tensor, value_states: Tensor, *args: Any, **kwargs: Any
    ) -> tuple[Tensor, Tensor]:
        """Write the new states in place and return views of the rows and positions in use."""
        if not self.is_initialized:
            self.lazy_initialization(key_states, value_states)
        assert self.keys is not None and self.values is not None
        places = self.cache.places(self.keys.shape[1])
        for kept, new in ((self.keys, key_states), (self.values, value_states)):
            kept.view(-1, kept.shape[-1]).index_copy_(0, places, new.reshape(-1, new.shape[-1]))
        return self.window()

    def write(self, keys: Tensor, values: Tensor) -> None:
        """Write the states [T, heads, d] of tokens whose places `KeptCache.aim_at` was told."""
        if not self.is_initialized:
            self.lazy_initialization(keys[None].transpose(1, 2), values[None].transpose(1, 2))
        assert self.keys is not None and self.values is not None
        slots, positions = self.cache.aimed
        self.keys[slots, :, positions] = keys
        self.values[slots, :, positions] = values

    def window(self) -> tuple[Tensor, Tensor]:
        """Keys and values of the rows and positions in use, as views."""
        assert self.keys is not None and self.values is not None
        return self.keys[: self.cache.count, :, : self.cache.reach], self.values[
            : self.cache.count, :, : self.cache.reach
        ]

    def grow(self, capacity: int) -> None:
        """Make room for `capacity` positions a row."""
        if self.is_initialized:
            assert self.keys is not None and self.values is not None
            self.keys, self.values = _widened(self.keys, capacity), _widened(self.values, capacity)

    def move(self, source: Tensor, target: Tensor, length: int) -> None:
        """Copy the first `length` positions of rows `source` to rows `target` (which may be a permutation of
        them).
        """
        if self.is_initialized:
            assert self.keys is not None and self.values is not None
            for kept in (self.keys, self.values):
                kept[target, :, :length] = kept[source, :, :length]

    def get_seq_length(self) -> int:
        """Unused: the engine gives positions and mask itself."""
        return 0

    def get_mask_sizes(self, query_length: int) -> tuple[int, int]:
        """Unused: the engine gives the mask itself."""
        return self.cache.reach, 0

    def get_max_length(self) -> int:
        """No bound: the cache grows."""
        return -1


class KeptCache(Cache):
    """The layers, and the window of rows and positions that the forward pass under way writes to.

    Args:
        layers: layers of the model.
        rows: rows to allocate.
        capacity: positions a row to allocate at first; doubled as needed.
    """

    def __init__(self, layers: int, rows: int, capacity: int) -> None:
        self.rows, self.capacity = rows, capacity
        self.count = self.reach = 0
        self._places: dict[int, Tensor] = {}
        self._positions = torch.zeros(0, 0, dtype=torch.long)
        self.aimed = (self._positions, self._positions)
        self.kept = [KeptLayer(self) for _ in range(layers)]
        super().__init__(layers=[*self.kept])

    def aim(self, positions: Tensor) -> None:
        """Say where the next forward pass writes: the first B rows, at `positions` int64 [B, L]; grows the
        cache to fit.
        """
        self._reach(positions)
        self._positions, self._places = positions, {}

    def aim_at(self, slots: Tensor, positions: Tensor, rows: int) -> None:
        """Say where the next `KeptLayer.write` writes tokens of `rows` rows: places int64 [T] each; grows the
        cache to fit.
        """
        self._reach(positions)
        self.count = rows
        self.aimed = (slots, positions)

    def _reach(self, positions: Tensor) -> None:
        self.count, self.reach = positions.shape[0], int(positions.max()) + 1
        if self.reach > self.capacity:
            self.capacity = max(2 * self.capacity, self.reach)
            for layer in self.kept:
                layer.grow(self.capacity)

    def places(self, heads: int) -> Tensor:
        """Flat indices into [rows * heads * capacity] of the states [rows of the pass, heads, L]; the same
        for every layer.
        """
        if heads not in self._places:
            device = self._positions.device
            rows = torch.arange(self.count, device=device)[:, None, None]
            head = torch.arange(heads, device=device)[None, :, None]
            self._places[heads] = (
                (rows * heads + head) * self.capacity + self._positions[:, None, :]
            ).reshape(-1)
        return self._places[heads]

    def move(self, source: list[int], target: list[int], length: int) -> None:
        """Copy rows `source` to rows `target`, up to `length` positions."""
        device = self._positions.device
        for layer in self.kept:
            layer.move(torch.tensor(source, device=device), torch.tensor(target, device=device), length)


def _widened(kept: Tensor, capacity: int) -> Tensor:
    wide = kept.new_zeros(*kept.shape[:2], capacity, kept.shape[3])
    wide[:, :, : kept.shape[2]] = kept
    return wide
