"""What was wanted and what is there, both far behind, said side by side: the exercise against taking one for the other.

A verdict reads `deneen want tuj5: no`: what the page holds beside what the task asks for. Where most that is got is what was wanted, a
small model learns to say the first word again, `deneen want deneen: yes`, and grants whatever a policy does; asked for an element that is
not there, it adds it to the listing, `12 14 42 want 42: yes` (docs/experiments.md). Here both sides must be fetched from where they
stand, and half of them differ.
"""

from __future__ import annotations

import random
from itertools import chain

from components.language.examples import Example, Segment
from components.language.exercise_words import pools
from components.language.markers import TURN
from components.language.tokenizer import Vocabulary

ROUNDS = 8
MOST_WANTED, LONGEST_LIST, MOST_BETWEEN = 4, 10, 3
"""Words that a round compares, words of a listing, and tokens between two wanted words, at most."""
LONGEST_WORD, WHOLE = 4, 0.6
"""Tokens of a word at most, like a name spelt in letters, and the share of words of one token."""

Word = tuple[int, ...]


def recall_examples(vocabulary: Vocabulary, tokens: int, seed: int) -> list[Example]:
    """Examples of about `tokens` tokens in all; every second one of wishes, the others of listings.

    Wishes stand once at the beginning, then rounds of `<what is there>. works. <the first> want <the first wish>: yes, <the second> want
    <the second wish>: no,`, up to the first no. Listings: rounds of `<list>, on <word>. works. <list> want <word>: yes,`. The loss is on
    what follows `works.`, the answers included.
    """
    rng = random.Random(f"recalling/{seed}")
    signs = {text: vocabulary.behind(text) for text in (",", ". works.", " want", ", on", ": yes,", ": no,")}
    turn, examples, made = vocabulary.marker_id(TURN), list[Example](), 0
    for number, pool in enumerate(pools(vocabulary, rng, taken=frozenset(chain.from_iterable(signs.values())))):
        sequence, loss = [turn], [False]
        words = [_word(rng, pool) for _ in range(len(pool))]
        wishes = rng.sample(words, rng.randint(1, min(MOST_WANTED, len(words)))) if number % 2 == 0 else []
        for wish in wishes:
            between = rng.choices(pool, k=rng.randint(0, MOST_BETWEEN))
            sequence += [*between, *wish, *signs[","]]
        loss += [False] * (len(sequence) - len(loss))
        for _ in range(ROUNDS):
            shown, answer = _verdicts(rng, words, wishes, signs) if wishes else _listing(rng, words, signs)
            sequence += shown + answer
            loss += [False] * len(shown) + [True] * len(answer)
        examples.append(Example([Segment(sequence, loss)]))
        made += len(sequence)
        if made >= tokens:
            break
    return examples


def _word(rng: random.Random, pool: list[int]) -> Word:
    return tuple(rng.choices(pool, k=1 if rng.random() < WHOLE else rng.randint(2, LONGEST_WORD)))


def _verdicts(rng: random.Random, words: list[Word], wishes: list[Word], signs: dict[str, list[int]]) -> tuple[list[int], list[int]]:
    """(what is there, what is said of it) as tokens; what is there is what is wanted three times in four, or another wish or word."""
    there = [wish if rng.random() < 0.75 else rng.choice(wishes + words) for wish in wishes]
    said: list[int] = []
    for word, wish in zip(there, wishes, strict=True):
        said += [*word, *signs[" want"], *wish, *signs[": yes," if word == wish else ": no,"]]
        if word != wish:
            break
    return [*chain.from_iterable((*word, *signs[","]) for word in there), *signs[". works."]], said


def _listing(rng: random.Random, words: list[Word], signs: dict[str, list[int]]) -> tuple[list[int], list[int]]:
    """(a list and the word that is asked about, what is said of it) as tokens; the word is missing every second time."""
    listed = rng.sample(words, rng.randint(1, min(LONGEST_LIST, len(words) - 1)))
    missing = [word for word in words if word not in listed]
    word = rng.choice(missing) if missing and rng.random() < 0.5 else rng.choice(listed)
    flat = list(chain.from_iterable(listed))
    answer = signs[": yes," if word in listed else ": no,"]
    return [*flat, *signs[", on"], *word, *signs[". works."]], [*flat, *signs[" want"], *word, *answer]
