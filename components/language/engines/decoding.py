"""The sampling loop of a kept-cache session: which rows still generate, and what they have generated."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from components.language.engines.cached_rows import CachedRows
from components.language.engines.engine_protocol import Generation
from components.language.sampled_ids import last_known_id, without_unknown

COMPACT_BELOW = 0.75
"""Share of rows still generating at or below which the others leave the batch."""


class Decoding:
    """One call of `KeptCacheSession.generate`.

    Args:
        rows: the session's rows.
        generator: the session's random stream.
        stop: token ids that end a row.
        max_new_tokens: limit for each row.
        temperature: of the softmax; 0 is greedy.
    """

    def __init__(
        self,
        rows: CachedRows,
        generator: torch.Generator,
        *,
        stop: set[int],
        max_new_tokens: int,
        temperature: float,
    ) -> None:
        self._rows = rows
        self._generator = generator
        self._stop = stop
        self._max_new_tokens = max_new_tokens
        self._temperature = temperature
        self._generations: dict[int, Generation] = {}

    def run(self, prompts: Mapping[int, list[int]]) -> dict[int, Generation]:
        """Prefill, then generate token by token while any row continues; one entry a prompt, in order."""
        self._generations = {row: Generation() for row in prompts}
        prompt_rows = list(prompts)
        logits = self._rows.feed(prompts)
        batch = self._rows.first_slots_order(prompt_rows)
        self._rows.arrange(batch)
        logits = logits[torch.tensor([prompt_rows.index(row) for row in batch], device=self._rows.device)]
        active = set(batch) if self._max_new_tokens > 0 else set()
        while active:
            active -= self._append_next_tokens(batch, logits, active)
            if not active:
                break
            if len(active) <= COMPACT_BELOW * len(batch):
                batch = self._rows.first_slots_order([row for row in batch if row in active])
                self._rows.arrange(batch)
            logits = self._compute_pending(batch, active)
        return self._generations

    def _append_next_tokens(self, batch: list[int], logits: Tensor, active: set[int]) -> set[int]:
        """Choose the next token of each active row; returns the rows that end with it."""
        tokens, logprobs = self._choose_tokens(logits)
        ended_rows = set()
        for row, token, logprob in zip(batch, tokens, logprobs, strict=True):
            if row not in active:
                continue
            generation = self._generations[row]
            generation.tokens.append(token)
            generation.logprobs.append(logprob)
            generation.stopped = token in self._stop
            self._rows.pending[row] = [token]
            is_full = len(generation.tokens) >= self._max_new_tokens or self._rows.room(row) < 1
            if generation.stopped or is_full:
                ended_rows.add(row)
        return ended_rows

    def _choose_tokens(self, logits: Tensor) -> tuple[list[int], list[float]]:
        """The next token of each row, and its log-probability in nats."""
        logits = without_unknown(self._rows.model, logits)
        distribution = torch.log_softmax(
            logits / self._temperature if self._temperature > 0 else logits, dim=-1
        )
        if self._temperature > 0:
            tokens = self._sample(distribution)
        else:
            tokens = distribution.argmax(-1, keepdim=True)
        return tokens[:, 0].tolist(), distribution.gather(1, tokens)[:, 0].tolist()

    def _sample(self, distribution: Tensor) -> Tensor:
        """One token [B, 1] of each row of log-probabilities [B, V].

        Inversion of the cumulative distribution: several times faster than torch.multinomial on a CPU.
        """
        cumulative = distribution.exp().cumsum(-1)
        uniform = torch.rand(len(distribution), 1, generator=self._generator, device=distribution.device)
        tokens = torch.searchsorted(cumulative, uniform * cumulative[:, -1:], right=True)
        return tokens.clamp(max=last_known_id(self._rows.model, distribution.shape[1]))

    def _compute_pending(self, batch: list[int], active: set[int]) -> Tensor:
        """Compute the pending token of every row; logits [B, V].

        Rows that have ended are in the batch still. Their token stays pending.
        """
        logits = self._rows.forward(batch, [self._rows.pending[row] for row in batch])
        for row in batch:
            if row in active:
                self._rows.pending[row] = []
            else:
                self._rows.cached[row] -= 1
        return logits
