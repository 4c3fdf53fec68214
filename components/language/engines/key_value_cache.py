"""A key-value cache that is never copied: one preallocated block a layer, with rows of different lengths.

Stock caches concatenate, that is copy, all states at each token. Here new keys and values are written in
place at the end of each row. Positions at or after a row's end may hold any finite value: the mask hides
them.
"""

from __future__ import annotations

from typing import Any
from weakref import proxy

import torch
from torch import Tensor
from transformers.cache_utils import Cache, CacheLayerMixin


class KeptLayer(CacheLayerMixin):
    """Keys and values [rows, key-value heads, capacity, head width] of one layer.

    A window of it is in use: the rows and positions of the current pass.
    """

    def __init__(self, cache: KeptCache) -> None:
        super().__init__()
        # A weak reference makes no cycle: a session's memory is freed at once, not by the garbage collector.
        self.cache = proxy(cache)

    def lazy_initialization(self, key_states: Tensor, value_states: Tensor) -> None:
        """Allocate once the widths are known. Zeros, because masked positions must be finite."""
        _, heads, _, width = key_states.shape
        shape = (self.cache.rows, heads, self.cache.capacity)
        self.keys = key_states.new_zeros(*shape, width)
        self.values = value_states.new_zeros(*shape, value_states.shape[-1])
        self.is_initialized = True

    def update(
        self, key_states: Tensor, value_states: Tensor, *args: Any, **kwargs: Any
    ) -> tuple[Tensor, Tensor]:
        """Write the new states in place; returns views of the rows and positions in use."""
        if not self.is_initialized:
            self.lazy_initialization(key_states, value_states)
        assert self.keys is not None and self.values is not None
        places = self.cache.places(self.keys.shape[1])
        for kept, new in ((self.keys, key_states), (self.values, value_states)):
            kept.view(-1, kept.shape[-1]).index_copy_(0, places, new.reshape(-1, new.shape[-1]))
        return self.window()

    def write(self, keys: Tensor, values: Tensor) -> None:
        """Write states [T, heads, d] to the places set by `KeptCache.set_token_targets`."""
        if not self.is_initialized:
            self.lazy_initialization(keys[None].transpose(1, 2), values[None].transpose(1, 2))
        assert self.keys is not None and self.values is not None
        slots, positions = self.cache.aimed
        self.keys[slots, :, positions] = keys
        self.values[slots, :, positions] = values

    def window(self) -> tuple[Tensor, Tensor]:
        """Views of the keys and values of the rows and positions in use."""
        assert self.keys is not None and self.values is not None
        count = self.cache.count
        reach = self.cache.reach
        return self.keys[:count, :, :reach], self.values[:count, :, :reach]

    def grow(self, capacity: int) -> None:
        """Make room for `capacity` positions in each row."""
        if self.is_initialized:
            assert self.keys is not None and self.values is not None
            self.keys = _widen(self.keys, capacity)
            self.values = _widen(self.values, capacity)

    def move(self, source: Tensor, target: Tensor, length: int) -> None:
        """Copy the first `length` positions of rows `source` to rows `target`, which may be a permutation."""
        if self.is_initialized:
            assert self.keys is not None and self.values is not None
            for kept in (self.keys, self.values):
                kept[target, :, :length] = kept[source, :, :length]

    def get_seq_length(self) -> int:
        """Unused: the engine passes positions and mask itself."""
        return 0

    def get_mask_sizes(self, query_length: int) -> tuple[int, int]:
        """Unused: the engine passes the mask itself."""
        return self.cache.reach, 0

    def get_max_length(self) -> int:
        """-1, no bound: the cache grows."""
        return -1


class KeptCache(Cache):
    """The layers, and the window of rows and positions that the current pass writes to.

    `count` and `reach` are the rows and positions of the window.

    Args:
        layers: layers of the model.
        rows: rows to allocate.
        capacity: positions to allocate in each row at first; doubled as needed.
    """

    def __init__(self, layers: int, rows: int, capacity: int) -> None:
        self.rows = rows
        self.capacity = capacity
        self.count = self.reach = 0
        self._places: dict[int, Tensor] = {}
        self._positions = torch.zeros(0, 0, dtype=torch.long)
        self.aimed = (self._positions, self._positions)
        self.kept = [KeptLayer(self) for _ in range(layers)]
        super().__init__(layers=[*self.kept])

    def set_row_targets(self, positions: Tensor) -> None:
        """Set where the next pass writes: the first B rows, at `positions` int64 [B, L]; grows the cache."""
        self._set_window(positions)
        self._positions = positions
        self._places = {}

    def set_token_targets(self, slots: Tensor, positions: Tensor, rows: int) -> None:
        """Set where the next `KeptLayer.write` writes; grows the cache.

        Args:
            slots: int64 [T], the row of each token.
            positions: int64 [T], its position.
            rows: how many rows the window has.
        """
        self._set_window(positions)
        self.count = rows
        self.aimed = (slots, positions)

    def _set_window(self, positions: Tensor) -> None:
        """Make the window end at the last of `positions`; grow the layers if they are shorter."""
        self.count = positions.shape[0]
        self.reach = int(positions.max()) + 1
        if self.reach > self.capacity:
            self.capacity = max(2 * self.capacity, self.reach)
            for layer in self.kept:
                layer.grow(self.capacity)

    def places(self, heads: int) -> Tensor:
        """Flat indices into [rows * heads * capacity] of the states [B, heads, L] of the pass.

        They are the same for every layer, and computed once.
        """
        if heads not in self._places:
            device = self._positions.device
            rows = torch.arange(self.count, device=device)[:, None, None]
            head = torch.arange(heads, device=device)[None, :, None]
            places = (rows * heads + head) * self.capacity + self._positions[:, None, :]
            self._places[heads] = places.reshape(-1)
        return self._places[heads]

    def move(self, source: list[int], target: list[int], length: int) -> None:
        """Copy the first `length` positions of rows `source` to rows `target`, in all layers."""
        device = self._positions.device
        for layer in self.kept:
            layer.move(torch.tensor(source, device=device), torch.tensor(target, device=device), length)


def _widen(kept: Tensor, capacity: int) -> Tensor:
    """A copy of `kept` with room for `capacity` positions."""
    wide = kept.new_zeros(*kept.shape[:2], capacity, kept.shape[3])
    wide[:, :, : kept.shape[2]] = kept
    return wide
