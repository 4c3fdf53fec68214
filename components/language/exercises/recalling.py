"""Recalling: retrieve the wanted and the present item from far back, and compare the two.

A verdict of the experience model reads `deneen want tuj5: no`: what the page holds, then what the task asks
for. In most data the two are the same. A small model then learns to repeat the first word, `deneen want
deneen: yes`, and grants whatever a policy does. Asked for an element that is not there, it adds it to the
listing: `12 14 42 want 42: yes` (docs/experiments). In this exercise both sides must be fetched from where
they stand, and half of them differ.
"""

from __future__ import annotations

import random
from itertools import chain

from components.language.exercises.words import word_pools
from components.language.training.examples import Example, Segment
from components.language.vocabulary.compact_vocabulary import CompactVocabulary
from components.language.vocabulary.markers import TURN

ROUNDS = 8
MOST_WANTED = 4
"""Most words that a round compares."""
LONGEST_LIST = 10
"""Most words of a listing."""
LONGEST_WORD = 4
"""Most tokens of a word, for example of a name spelt in letters."""
WHOLE = 0.6
"""Share of words that are one token."""
PHRASES = (",", ". works.", " want", ", on", ": yes,", ": no,")

Word = tuple[int, ...]


def recall_examples(vocabulary: CompactVocabulary, tokens: int, seed: int) -> list[Example]:
    """Examples of about `tokens` tokens in all, alternately of wishes and of listings.

    Wishes are rounds of `<lead> <wish>, <lead> <wish>, on <item>, <item>. works. <lead> <wish>, <item> want
    <wish>: yes, <lead> <wish>, <item> want <wish>: no,`, up to the first no. Listings are rounds of `<list>,
    on <word>. works. <list> want <word>: yes,`. All that follows `works.` has loss. Each round draws new
    lists and wishes, so that nothing can be copied from an earlier round.
    """
    rng = random.Random(f"recalling/{seed}")
    phrases = {text: vocabulary.encode_after_word(text) for text in PHRASES}
    turn = vocabulary.marker_id(TURN)
    excluded = frozenset(chain.from_iterable(phrases.values()))
    examples: list[Example] = []
    token_count = 0
    for number, pool in enumerate(word_pools(vocabulary, rng, excluded=excluded)):
        sequence = [turn]
        loss = [False]
        words = [_draw_word(rng, pool) for _ in range(len(pool))]
        for _ in range(ROUNDS):
            prompt, answer = (
                _listing_round(rng, words, phrases) if number % 2 else _wish_round(rng, pool, words, phrases)
            )
            sequence += prompt + answer
            loss += [False] * len(prompt) + [True] * len(answer)
        examples.append(Example([Segment(sequence, loss)]))
        token_count += len(sequence)
        if token_count >= tokens:
            break
    return examples


def _draw_word(rng: random.Random, pool: list[int]) -> Word:
    """One token of `pool`, or 2 to `LONGEST_WORD` of them."""
    return tuple(rng.choices(pool, k=1 if rng.random() < WHOLE else rng.randint(2, LONGEST_WORD)))


def _wish_round(
    rng: random.Random, pool: list[int], words: list[Word], phrases: dict[str, list[int]]
) -> tuple[list[int], list[int]]:
    """(wishes and items, verdicts) as tokens; three items in four are the wished ones."""
    count = rng.randint(1, min(MOST_WANTED, len(words)))
    leads = rng.sample(pool, count)
    wishes = rng.sample(words, count)
    items = [wish if rng.random() < 0.75 else rng.choice(words) for wish in wishes]
    wish_tokens = [
        token for lead, wish in zip(leads, wishes, strict=True) for token in (lead, *wish, *phrases[","])
    ]
    item_tokens = [token for item in items for token in (*item, *phrases[","])]
    verdicts: list[int] = []
    for lead, wish, item in zip(leads, wishes, items, strict=True):
        verdicts += [lead, *wish, *phrases[","], *item, *phrases[" want"], *wish]
        verdicts += phrases[": yes," if item == wish else ": no,"]
        if item != wish:
            break
    return [*wish_tokens, *phrases[", on"], *item_tokens, *phrases[". works."]], verdicts


def _listing_round(
    rng: random.Random, words: list[Word], phrases: dict[str, list[int]]
) -> tuple[list[int], list[int]]:
    """(a list and a word, the list and whether the word is in it) as tokens; half of the words are not."""
    listed_words = rng.sample(words, rng.randint(1, min(LONGEST_LIST, len(words) - 1)))
    absent_words = [word for word in words if word not in listed_words]
    word = rng.choice(absent_words) if absent_words and rng.random() < 0.5 else rng.choice(listed_words)
    list_tokens = list(chain.from_iterable(listed_words))
    answer = phrases[": yes," if word in listed_words else ": no,"]
    prompt = [*list_tokens, *phrases[", on"], *word, *phrases[". works."]]
    return prompt, [*list_tokens, *phrases[" want"], *word, *answer]
