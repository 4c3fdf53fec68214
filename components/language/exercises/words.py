"""The words of an exercise: random tokens, or tokens that are easily confused, like `cup 1` and `cup 2`.

If a vocabulary has tokens for a thing with its number, those of one thing occur in the same contexts and get
similar embeddings. A model that never confuses two random words then takes `apple 2` for `apple 1`
(docs/experiments).
"""

from __future__ import annotations

import random
import re
from collections.abc import Iterator

from components.language.vocabulary.compact_vocabulary import CompactVocabulary
from components.language.vocabulary.markers import MARKERS

POOL = 24
"""Words of one example: so few that each soon occurs in some list, and only the current list decides."""
MAX_SIMILAR = 4
"""Most words of one thing in a pool."""


def word_pools(
    vocabulary: CompactVocabulary, rng: random.Random, *, excluded: frozenset[int] = frozenset()
) -> Iterator[list[int]]:
    """Endless pools of `POOL` tokens (fewer of a tiny vocabulary), without markers and `excluded` ids.

    Every second pool holds similar words, if the vocabulary has enough of them.
    """
    barred_ids = excluded.union(vocabulary.marker_id(marker) for marker in MARKERS)
    words = [index for index in vocabulary.ids if index not in barred_ids]
    things = similar_words(vocabulary, words)
    while True:
        yield rng.sample(words, min(POOL, len(words)))
        if sum(min(MAX_SIMILAR, len(thing)) for thing in things) >= POOL:
            pool = [
                token
                for thing in rng.sample(things, len(things))
                for token in rng.sample(thing, min(MAX_SIMILAR, len(thing)))
            ]
            yield pool[:POOL]


def similar_words(vocabulary: CompactVocabulary, tokens: list[int]) -> list[list[int]]:
    """Groups of two or more tokens whose texts differ only in a number at the end."""
    groups: dict[str, list[int]] = {}
    for token in tokens:
        match = re.fullmatch(r"(.*[^\W\d].*?) ?\d+", vocabulary.decode([token]))
        if match:
            groups.setdefault(match.group(1), []).append(token)
    return [group for group in groups.values() if len(group) > 1]
