"""A session of the kept-cache engine: append, generate, rewind, copy and drop on rows of token ids."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import torch
from transformers import PreTrainedModel

from components.language.engines.active_rows import ActiveRows, require_start
from components.language.engines.cached_rows import CachedRows
from components.language.engines.decoding import Decoding
from components.language.engines.engine_protocol import Generation
from components.language.evaluation_mode import evaluating
from components.language.freed_memory import return_if_grown
from components.language.kernels.cache_attention import KEPT
from components.language.torch_seeds import torch_seed
from components.language.transformers_setup import attention_of


class KeptCacheSession:
    """Rows 0 to `rows - 1`, each a growing sequence of tokens.

    `rows` counts them; `longest` is the model's longest sequence in tokens. Implements `protocol.Session`.
    """

    def __init__(self, model: PreTrainedModel, rows: int, capacity: int, seed: int) -> None:
        self.model = model
        self.rows = rows
        self._active = ActiveRows(rows, model.config)
        self._store = CachedRows(model, rows, capacity)
        self.longest = self._store.longest
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
            self._active.require_fit(new_tokens, self.room)
            with evaluating(self.model), attention_of(self.model, KEPT):
                self._store.feed(new_tokens)

    def generate(
        self,
        prompts: Mapping[int, list[int]],
        *,
        stop: set[int],
        max_new_tokens: int,
        temperature: float,
    ) -> dict[int, Generation]:
        """Append the prompts, then generate on each of their rows until a stop token or `max_new_tokens`.

        Prompt and generated tokens, the stop token included, belong to the row afterwards.

        Args:
            prompts: tokens to append, by row.
            stop: token ids that end a row.
            max_new_tokens: limit for each row.
            temperature: of the softmax; 0 is greedy.

        Raises:
            DataError: a prompt does not fit.
            ValueError: a row has neither a prompt nor a token to continue from.
        """
        if not prompts:
            return {}
        require_start([row for row, prompt in prompts.items() if not prompt and not self._store.pending[row]])
        self._active.require_fit(prompts, self.room, extra_tokens=1)
        with evaluating(self.model), attention_of(self.model, KEPT):
            decoding = Decoding(
                self._store,
                self._generator,
                stop=stop,
                max_new_tokens=max_new_tokens,
                temperature=temperature,
            )
            result = decoding.run(prompts)
        return_if_grown()
        return result

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
        self._active.require_copyable(sources)
        self._store.copy(sources)

    def drop(self, rows: Iterable[int]) -> None:
        """Retire rows: they take no more tokens and cost nothing."""
        for row in rows:
            self._active.drop([row])
            self._store.empty(row)

    def clear(self, row: int) -> None:
        """Make `row` empty and usable, whether or not it was dropped."""
        self._active.revive(row)
        self._store.empty(row)
