"""Rows of tokens in a key-value cache, and the forward passes that compute them.

A row lives in a slot of the cache. A pass computes the rows of the first slots together. So rows are moved
between slots, to bring the rows of a pass to the front. The last token of a row may be pending: it counts,
but is computed together with the tokens that follow it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor
from transformers import PreTrainedModel

from components.language.engines.key_value_cache import KeptCache
from components.language.kernels.fused_decoder import PASS_TOKENS, FusedDecoder, Span, can_fuse
from components.language.output_head import has_plain_head
from components.language.sequence_limits import longest_sequence

PREFILL_TOKENS = 8192
"""Most tokens of one pass, padding included; bounds the size of its mask."""
MIN_PREFILL = 32
"""Fewest columns of a pass: with fewer, its fixed cost outweighs the padding."""
MOVES_PER_TOKEN = 40
"""How many cached tokens are moved in the time that computes one new token."""


class CachedRows:
    """Rows 0 to `rows - 1`: how many tokens of each are in the cache, and which are pending.

    `cached[row]` counts the tokens in the cache, `pending[row]` holds those after them, and `longest` is the
    model's longest sequence in tokens.

    Args:
        model: a causal language model without adapters of its own (`without_adapters`).
        rows: how many rows.
        capacity: tokens a row to allocate at first.
    """

    def __init__(self, model: PreTrainedModel, rows: int, capacity: int) -> None:
        self.model = model
        self.device = model.device
        self.longest = longest_sequence(model.config)
        self.cache = KeptCache(model.config.num_hidden_layers, rows, min(capacity, self.longest))
        self.cached = [0] * rows
        self.pending: list[list[int]] = [[] for _ in range(rows)]
        self._fused = FusedDecoder(model) if can_fuse(model) else None
        self._slot_of = list(range(rows))
        self._row_in = list(range(rows))

    @property
    def lengths(self) -> list[int]:
        """The token count of each row, pending tokens included."""
        return [cached + len(pending) for cached, pending in zip(self.cached, self.pending, strict=True)]

    def room(self, row: int) -> int:
        """How many more tokens `row` takes before it reaches the model's longest sequence."""
        return self.longest - self.cached[row] - len(self.pending[row])

    def truncate(self, row: int, length: int) -> None:
        """Keep the first `length` tokens of `row`.

        Raises:
            ValueError: it has fewer.
        """
        token_count = self.cached[row] + len(self.pending[row])
        if not 0 <= length <= token_count:
            raise ValueError(f"row {row} has {token_count} tokens and cannot be rewound to {length}")
        self.pending[row] = self.pending[row][: max(0, length - self.cached[row])]
        self.cached[row] = min(self.cached[row], length)

    def empty(self, row: int) -> None:
        """Remove all tokens of `row`."""
        self.cached[row] = 0
        self.pending[row] = []

    def copy(self, sources: Mapping[int, int]) -> None:
        """Replace the tokens of each named row by those of row `sources[row]`."""
        if sources:
            longest = max(self.cached[source] for source in sources.values())
            with torch.inference_mode():
                self.cache.move(
                    [self._slot_of[source] for source in sources.values()],
                    [self._slot_of[row] for row in sources],
                    longest,
                )
        for row, source in sources.items():
            self.cached[row] = self.cached[source]
            self.pending[row] = list(self.pending[source])

    def feed(self, tokens: Mapping[int, list[int]]) -> Tensor:
        """Compute the pending and the new tokens of rows.

        Returns:
            Logits [rows in the order of `tokens`, V] after the last token of each.
        """
        new_tokens = {row: self.pending[row] + list(row_tokens) for row, row_tokens in tokens.items()}
        if self._fused is not None:
            return self._feed_fused(self._fused, new_tokens)
        order, is_sorted = self._prefill_order(new_tokens)
        self.arrange(order)
        last_logits: dict[int, Tensor] = {}
        done = 0
        while order:
            left = [len(new_tokens[row]) - done for row in order]
            # With the longest first, unfinished rows are a prefix of `order`. A pass ends where the shortest
            # row ends, and the next one leaves that row out.
            width = min(
                max(left),
                max(MIN_PREFILL, PREFILL_TOKENS // len(order)),
                max(MIN_PREFILL, min(left)) if is_sorted else max(left),
            )
            logits = self.forward(order, [new_tokens[row][done : done + width] for row in order])
            last_logits |= {row: logits[i] for i, row in enumerate(order) if 0 < left[i] <= width}
            done += width
            if is_sorted or max(left) <= width:
                order = [row for row in order if len(new_tokens[row]) > done]
        for row in new_tokens:
            self.pending[row] = []
        return torch.stack([last_logits[row] for row in tokens])

    def _feed_fused(self, fused: FusedDecoder, new_tokens: Mapping[int, list[int]]) -> Tensor:
        """`feed` without padding: passes of at most `PASS_TOKENS` tokens, cut at any place of a row."""
        last_logits: dict[int, Tensor] = {}
        starts = (
            (row, start) for row, tokens in new_tokens.items() for start in range(0, len(tokens), PASS_TOKENS)
        )
        parts = [(row, start, new_tokens[row][start : start + PASS_TOKENS]) for row, start in starts]
        while parts:
            count = 0
            room = PASS_TOKENS
            while count < len(parts) and (room := room - len(parts[count][2])) >= 0:
                count += 1
            pass_parts = parts[:count]
            parts = parts[count:]
            spans = [
                Span(self._slot_of[row], self.cached[row] + start, len(part))
                for row, start, part in pass_parts
            ]
            ids = torch.tensor([token for _, _, part in pass_parts for token in part])
            logits = fused.logits(ids, spans, self.cache)
            last_logits |= {row: logits[i] for i, (row, _, _) in enumerate(pass_parts)}
        for row, tokens in new_tokens.items():
            self.cached[row] += len(tokens)
            self.pending[row] = []
        return torch.stack([last_logits[row] for row in new_tokens])

    def _prefill_order(self, new_tokens: Mapping[int, list[int]]) -> tuple[list[int], bool]:
        """The order of rows for `feed`, and whether the row with the most new tokens comes first.

        Sorting saves padding and costs moves of rows. It is done where the saving is larger.
        """
        counts = [len(tokens) for tokens in new_tokens.values()]
        padding = max(counts) * len(counts) - sum(counts)
        if padding * MOVES_PER_TOKEN > sum(self.cached[row] for row in new_tokens):
            return sorted(new_tokens, key=lambda row: (-len(new_tokens[row]), self._slot_of[row])), True
        return self.first_slots_order(list(new_tokens)), False

    def forward(self, order: list[int], chunks: list[list[int]]) -> Tensor:
        """Compute one chunk of tokens for each row; the rows stand in the slots 0, 1, and so on.

        Returns:
            Logits [rows, V] after the last token of each chunk.
        """
        if self._fused is not None:
            spans = [
                Span(slot, self.cached[row], len(chunk))
                for slot, (row, chunk) in enumerate(zip(order, chunks, strict=True))
            ]
            for row, chunk in zip(order, chunks, strict=True):
                self.cached[row] += len(chunk)
            return self._fused.logits(
                torch.tensor([token for chunk in chunks for token in chunk]), spans, self.cache
            )
        width = max(len(chunk) for chunk in chunks)
        ids = torch.tensor([chunk + [0] * (width - len(chunk)) for chunk in chunks], device=self.device)
        starts = torch.tensor([self.cached[row] for row in order], device=self.device)
        ends = torch.tensor([len(chunk) - 1 for chunk in chunks], device=self.device)
        logits = self._padded_logits(ids, starts, ends)
        for row, chunk in zip(order, chunks, strict=True):
            self.cached[row] += len(chunk)
        return logits

    def _padded_logits(self, ids: Tensor, starts: Tensor, ends: Tensor) -> Tensor:
        """One pass of the transformers model over the slots 0 to B - 1.

        Args:
            ids: tokens [B, L], padded on the right.
            starts: [B], tokens of each slot that are in the cache.
            ends: [B], column of each slot's last token.

        Returns:
            fp32 logits [B, V] at column `ends`.
        """
        positions = starts[:, None] + torch.arange(ids.shape[1], device=self.device)
        self.cache.set_row_targets(positions)
        is_hidden = torch.arange(self.cache.reach, device=self.device)[None, None, :] > positions[:, :, None]
        mask = torch.zeros(is_hidden.shape, dtype=self.model.dtype, device=self.device).masked_fill_(
            is_hidden, float("-inf")
        )
        inputs: dict[str, Any] = {
            "input_ids": ids,
            "position_ids": positions.clamp(max=self.longest - 1),
            "attention_mask": mask[:, None],
            "past_key_values": self.cache,
            "use_cache": True,
        }
        rows = torch.arange(len(ids), device=self.device)
        if not has_plain_head(self.model):
            return self.model(**inputs).logits[rows, ends].float()
        hidden = self.model.get_decoder()(**inputs).last_hidden_state
        return self.model.get_output_embeddings()(hidden[rows, ends]).float()

    def first_slots_order(self, rows: list[int]) -> list[int]:
        """`rows` in an order for the first slots in which rows that are there already stay where they are."""
        front = {self._slot_of[row]: row for row in rows if self._slot_of[row] < len(rows)}
        movers = [row for row in rows if self._slot_of[row] >= len(rows)]
        return [front[slot] if slot in front else movers.pop() for slot in range(len(rows))]

    def arrange(self, order: list[int]) -> None:
        """Bring the rows of `order` into the slots 0, 1, and so on, by swaps with the rows that are there."""
        row_in = list(self._row_in)
        slot_of = list(self._slot_of)
        for slot, row in enumerate(order):
            other_row = row_in[slot]
            old_slot = slot_of[row]
            row_in[slot], row_in[old_slot] = row, other_row
            slot_of[row], slot_of[other_row] = slot, old_slot
        moved = [row for row, slot in enumerate(slot_of) if slot != self._slot_of[row] and self.cached[row]]
        if moved:
            longest = max(self.cached[row] for row in moved)
            self.cache.move([self._slot_of[row] for row in moved], [slot_of[row] for row in moved], longest)
        self._row_in = row_in
        self._slot_of = slot_of
