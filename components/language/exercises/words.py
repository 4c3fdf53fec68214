"""Which tokens an exercise takes for words: random ones, or ones that are easily confused, `cup 1` and `cup
2`.

Where a vocabulary has tokens for a thing with its number, those of one thing stand in the same places and
come to resemble each other, so a model takes `apple 2` for `apple 1` that would never confuse two random
words (docs/experiments).
"""

from __future__ import annotations

import random
import re
from collections.abc import Iterator

from components.language.markers import MARKERS
from components.language.tokenizer import Vocabulary

POOL = 24
"""Words of one example: so few that all have been seen before, and only the list at hand decides."""
ALIKE = 4
"""Words of one thing in a pool, at most."""


def pools(
    vocabulary: Vocabulary, rng: random.Random, *, taken: frozenset[int] = frozenset()
) -> Iterator[list[int]]:
    """Endless pools of `POOL` tokens (fewer of a tiny vocabulary), no marker and none `taken`.

    Every second pool is of words alike, where the vocabulary has enough of them.
    """
    barred = taken.union(vocabulary.marker_id(marker) for marker in MARKERS)
    words = [index for index in vocabulary.ids if index not in barred]
    things = alike(vocabulary, words)
    while True:
        yield rng.sample(words, min(POOL, len(words)))
        if sum(min(ALIKE, len(thing)) for thing in things) >= POOL:
            chosen = [
                token
                for thing in rng.sample(things, len(things))
                for token in rng.sample(thing, min(ALIKE, len(thing)))
            ]
            yield chosen[:POOL]


def alike(vocabulary: Vocabulary, tokens: list[int]) -> list[list[int]]:
    """Groups of two tokens or more whose texts differ in a number at their end alone."""
    groups: dict[str, list[int]] = {}
    for token in tokens:
        found = re.fullmatch(r"(.*[^\W\d].*?) ?\d+", vocabulary.decode([token]))
        if found:
            groups.setdefault(found.group(1), []).append(token)
    return [group for group in groups.values() if len(group) > 1]
