"""Comparing: random lists, and the question whether a word is among them.

An experience model must refuse what is not there: a place that the room does not have, a thing that is not
listed, another thing than the wanted one. The programmatic teacher writes both sides next to each other:
`cup 1 pan 2 want mug 1: no`. A model of a million parameters had read 22 million tokens of trajectories. It
answered such questions at chance level, and went by what is usual. With single words first, it learns
them within half a million tokens of this exercise; lists take two million more (docs/experiments).
"""

from __future__ import annotations

import random

from components.language.exercises.words import word_pools
from components.language.training.examples import Example, Segment
from components.language.vocabulary.compact_vocabulary import CompactVocabulary
from components.language.vocabulary.markers import TURN

ROUNDS = 24


def compare_examples(vocabulary: CompactVocabulary, tokens: int, longest: int, seed: int) -> list[Example]:
    """Examples of rounds `<list> want <word>: yes,`, with about `tokens` tokens in all.

    A list has 1 to `longest` random words. Half of the answers are no. Only the first token of an answer has
    loss, because the rest follows from it.
    """
    rng = random.Random(f"comparing/{longest}/{seed}")
    question = vocabulary.encode_after_word(" want")
    answers = {
        truth: vocabulary.encode_after_word(f": {'yes' if truth else 'no'},") for truth in (True, False)
    }
    examples: list[Example] = []
    token_count = 0
    for pool in word_pools(vocabulary, rng):
        sequence = [vocabulary.marker_id(TURN)]
        loss = [False]
        for _ in range(ROUNDS):
            words = rng.choices(pool, k=rng.randint(1, longest))
            absent_words = [other for other in pool if other not in words]
            word = rng.choice(words) if rng.random() < 0.5 or not absent_words else rng.choice(absent_words)
            colon, first, *rest = answers[word in words]
            sequence += [*words, *question, word, colon, first, *rest]
            loss += [False] * (len(words) + len(question) + 2) + [True] + [False] * len(rest)
        examples.append(Example([Segment(sequence, loss)]))
        token_count += len(sequence)
        if token_count >= tokens:
            break
    return examples
