"""Batched generation in this process, with a key-value cache that is kept from step to step of an episode.

A row is one conversation: a growing prefix in the cache. No token is computed twice. A volatile part
(demonstrations, an answer) is generated after the prefix; `rewind` drops it at no cost. Rows have lengths of
their own and no holes. Rows that have stopped leave the batch while the others continue.

The parts: `kept_cache_session.py` (the interface), `cached_rows.py` (the forward passes), `decoding.py` (the
sampling loop), `key_value_cache.py` (the memory).
"""

from __future__ import annotations

from peft import PeftModel
from transformers import PreTrainedModel

from components.language.adapters import without_adapters
from components.language.engines.kept_cache_probe import probe_kept_cache
from components.language.engines.kept_cache_session import KeptCacheSession
from components.language.output_head import has_plain_head
from components.language.vocabulary.vocabulary import Vocabulary


class KeptCacheEngine:
    """Opens sessions of batched generation on `model`.

    The weights may change between sessions, but not within one.

    Args:
        model: a causal language model, with or without adapters.
        vocabulary: the tokenizer of `model`; kept for callers.
        seed: each session derives its own random stream from it.

    Raises:
        ConfigError: the architecture computes other numbers with a kept cache than without.
    """

    is_concurrent = False

    def __init__(self, model: PreTrainedModel | PeftModel, vocabulary: Vocabulary, *, seed: int = 0) -> None:
        self.model = without_adapters(model)
        self.vocabulary = vocabulary
        self.seed = seed
        self._session_count = 0
        if not has_plain_head(self.model):
            probe_kept_cache(self.model)

    def open(self, rows: int, capacity: int = 1024) -> KeptCacheSession:
        """A session of `rows` empty rows, with memory for `capacity` tokens a row at first."""
        self._session_count += 1
        return KeptCacheSession(self.model, rows, capacity, seed=self.seed * 1_000_003 + self._session_count)

    def with_seed(self, seed: int) -> KeptCacheEngine:
        """An engine over the same weights, with another random stream."""
        return KeptCacheEngine(self.model, self.vocabulary, seed=seed)
