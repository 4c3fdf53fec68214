"""A session of the kept-cache engine: append, generate, rewind, copy and drop on rows of token ids."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import torch
from transformers import PreTrainedModel

from components.errors import DataError
from components.language.engines.cached_rows import CachedRows
from components.language.engines.decoding import Decoding
from components.language.engines.engine_protocol import Generation
from components.language.evaluation_mode import evaluating
from components.language.kernels.cache_attention import KEPT
from components.language.sequence_limits import shorter_or_longer
from components.language.torch_seeds import torch_seed
from components.language.transformers_setup import attention_of


class KeptCacheSession:
    """Rows 0 to `rows - 1`, each a growing sequence of tokens.

    `rows` counts them; `longest` is the model's longest sequence in tokens. Implements `protocol.Session`.
    """

    def __init__(self, model: PreTrainedModel, rows: int, capacity: int, seed: int) -> None:
        if rows < 1:
            raise ValueError(f"a session of {rows} rows; expected at least one")
        self.model = model
        self.rows = rows
        self._store = CachedRows(model, rows, capacity)
        self.longest = self._store.longest
        self._active_rows = set(range(rows))
        self._generator = torch.Generator(device=model.device)
        self._generator.manual_seed(torch_seed(seed))

    @property
    def lengths(self) -> list[int]:
        """The token count of each row."""
        return self._store.lengths

    def room(self, row: int) -> int:
        """How many more tokens `row` takes before it reaches the model's longest sequence."""
        return self._store.room(row)

    def append(self, tokens: Mapping[int, list[int]]) -> None:
        """Append tokens to rows, all rows in one batch.

        Raises:
            DataError: a row would exceed the model's longest sequence.
        """
        new_tokens = {row: row_tokens for row, row_tokens in tokens.items() if row_tokens}
        if new_tokens:
            self._check_fit(new_tokens)
            with evaluating(self.model), attention_of(self.model, KEPT):
                self._store.feed(new_tokens)

    def generate(
        self,
        prompts: Mapping[int, list[int]],
        *,
        stop: set[int],
        max_new_tokens: int,
        temperature: float,
        force: Mapping[int, list[int]] | None = None,
    ) -> dict[int, Generation]:
        """Append the prompts, then generate on each of their rows until a stop token or `max_new_tokens`.

        Prompt and generated tokens, the stop token included, belong to the row afterwards.

        Args:
            prompts: tokens to append, by row.
            stop: token ids that end a row.
            max_new_tokens: limit for each row.
            temperature: of the softmax; 0 is greedy.
            force: tokens that a row must generate first. They count, and their log-probabilities are
                recorded.

        Raises:
            DataError: a prompt does not fit.
            ValueError: a row has neither a prompt nor a token to continue from.
        """
        if not prompts:
            return {}
        empty_rows = [row for row, prompt in prompts.items() if not prompt and not self._store.pending[row]]
        if empty_rows:
            raise ValueError(
                f"rows {empty_rows} have an empty prompt and nothing pending; expected at least one token to "
                "go on from"
            )
        self._check_fit(prompts, extra_tokens=1)
        with evaluating(self.model), attention_of(self.model, KEPT):
            decoding = Decoding(
                self._store,
                self._generator,
                stop=stop,
                max_new_tokens=max_new_tokens,
                temperature=temperature,
                force=force or {},
            )
            return decoding.run(prompts)

    def rewind(self, lengths: Mapping[int, int]) -> None:
        """Truncate each named row to its first `lengths[row]` tokens.

        Raises:
            ValueError: a row has fewer tokens than that.
        """
        for row, length in lengths.items():
            self._store.truncate(row, length)

    def copy(self, sources: Mapping[int, int]) -> None:
        """Replace the tokens of each named row by those of row `sources[row]`.

        Raises:
            ValueError: a row was dropped, or is both a source and a target.
        """
        ambiguous_rows = set(sources) & set(sources.values())
        inactive_rows = (set(sources) | set(sources.values())) - self._active_rows
        if ambiguous_rows or inactive_rows:
            raise ValueError(
                f"rows {sorted(ambiguous_rows | inactive_rows)} cannot be copied: dropped, never opened, or "
                "both source and target"
            )
        self._store.copy(sources)

    def drop(self, rows: Iterable[int]) -> None:
        """Retire rows: they take no more tokens and cost nothing."""
        for row in rows:
            self._active_rows.discard(row)
            self._store.empty(row)

    def clear(self, row: int) -> None:
        """Make `row` empty and usable, whether or not it was dropped."""
        self._active_rows.add(row)
        self._store.empty(row)

    def _check_fit(self, tokens: Mapping[int, list[int]], extra_tokens: int = 0) -> None:
        """Raise if a row is not active, or has no room for its tokens and `extra_tokens` more."""
        inactive_rows = [row for row in tokens if row not in self._active_rows]
        if inactive_rows:
            raise ValueError(f"rows {inactive_rows} were dropped or never opened")
        for row, row_tokens in tokens.items():
            if len(row_tokens) + extra_tokens > self.room(row):
                token_count = self.longest - self.room(row) + len(row_tokens) + extra_tokens
                raise DataError(
                    f"Row {row} would have {token_count} tokens.",
                    f"The model takes {self.longest}.",
                    shorter_or_longer(self.model.config),
                )
