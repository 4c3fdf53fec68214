"""The words of the exercises: no markers, and every second pool has words that differ only in a number."""

from __future__ import annotations

import random
from itertools import islice

from components.language.exercises.words import MAX_SIMILAR, POOL, similar_words, word_pools
from components.language.vocabulary.compact_vocabulary import CompactVocabulary
from components.language.vocabulary.markers import MARKERS

THINGS = ("cup", "pan", "mug", "vase", "desk", "bowl", "pot", "lamp")
NUMBERED = CompactVocabulary.train(
    [" ".join(f"{thing} {number}" for number in range(1, 7)) for thing in THINGS] * 9, 400
)


def test_similar_words_differ_only_in_their_numbers():
    groups = similar_words(NUMBERED, list(range(len(NUMBERED))))
    texts = [[NUMBERED.decode([token]).strip() for token in group] for group in groups]
    assert ["cup 1", "cup 2", "cup 3", "cup 4", "cup 5", "cup 6"] in [sorted(group) for group in texts]
    assert all(len({text.rstrip("0123456789") for text in group}) == 1 for group in texts)


def test_every_second_pool_has_similar_words():
    pools = list(islice(word_pools(NUMBERED, random.Random(0)), 6))
    markers = {NUMBERED.marker_id(marker) for marker in MARKERS}
    confusable = {token for group in similar_words(NUMBERED, list(range(len(NUMBERED)))) for token in group}
    for plain, similar in zip(pools[::2], pools[1::2], strict=True):
        assert len(plain) == len(set(plain)) == POOL and not markers & set(plain)
        assert set(similar) <= confusable and len(similar) == len(set(similar)) <= POOL
        names = [NUMBERED.decode([token]).strip().rstrip("0123456789") for token in similar]
        assert max(names.count(name) for name in names) <= MAX_SIMILAR


def test_a_vocabulary_without_numbered_words_has_only_random_pools():
    plain = CompactVocabulary.train(["no numbers here at all"], 300)
    excluded = frozenset(range(60, 200))
    for pool in islice(word_pools(plain, random.Random(0), excluded=excluded), 5):
        assert not excluded & set(pool) and len(pool) == POOL
