"""What was wanted and what is there, both far behind, said side by side: the exercise against taking one for
the other.

A verdict reads `deneen want tuj5: no`: what the page holds beside what the task asks for. Where most that is
got is what was wanted, a small model learns to say the first word again, `deneen want deneen: yes`, and
grants whatever a policy does; asked for an element that is not there, it adds it to the listing, `12 14 42
want 42: yes` (docs/experiments). Here both sides must be fetched from where they stand, and half of them
differ.
"""

from __future__ import annotations

import random
from itertools import chain

from components.language.exercises.words import pools
from components.language.markers import TURN
from components.language.tokenizer import Vocabulary
from components.language.training.examples import Example, Segment

ROUNDS = 8
MOST_WANTED, LONGEST_LIST = 4, 10
"""Words that a round compares and words of a listing, at most."""
LONGEST_WORD, WHOLE = 4, 0.6
"""Tokens of a word at most, like a name spelt in letters, and the share of words of one token."""

Word = tuple[int, ...]


def recall_examples(vocabulary: Vocabulary, tokens: int, seed: int) -> list[Example]:
    """Examples of about `tokens` tokens in all; every second one of wishes, the others of listings.

    Wishes: rounds of `<lead> <wish>, <lead> <wish>, on <there>, <there>. works. <lead> <wish>, <there> want
    <wish>: yes, <lead> <wish>, <there> want <wish>: no,`, up to the first no. Listings: rounds of `<list>, on
    <word>. works. <list> want <word>: yes,`. The loss is on what follows `works.`, the answers included; each
    round has lists and wishes of its own, so nothing is copied from the one before.
    """
    rng = random.Random(f"recalling/{seed}")
    signs = {text: vocabulary.behind(text) for text in (",", ". works.", " want", ", on", ": yes,", ": no,")}
    turn, examples, made = vocabulary.marker_id(TURN), list[Example](), 0
    for number, pool in enumerate(
        pools(vocabulary, rng, taken=frozenset(chain.from_iterable(signs.values())))
    ):
        sequence, loss = [turn], [False]
        words = [_word(rng, pool) for _ in range(len(pool))]
        for _ in range(ROUNDS):
            shown, answer = _listing(rng, words, signs) if number % 2 else _verdicts(rng, pool, words, signs)
            sequence += shown + answer
            loss += [False] * len(shown) + [True] * len(answer)
        examples.append(Example([Segment(sequence, loss)]))
        made += len(sequence)
        if made >= tokens:
            break
    return examples


def _word(rng: random.Random, pool: list[int]) -> Word:
    return tuple(rng.choices(pool, k=1 if rng.random() < WHOLE else rng.randint(2, LONGEST_WORD)))


def _verdicts(
    rng: random.Random, pool: list[int], words: list[Word], signs: dict[str, list[int]]
) -> tuple[list[int], list[int]]:
    """(wishes and what is there, what is said of them) as tokens; what is there is what is wanted three times
    in four.
    """
    count = rng.randint(1, min(MOST_WANTED, len(words)))
    leads, wishes = rng.sample(pool, count), rng.sample(words, count)
    there = [wish if rng.random() < 0.75 else rng.choice(words) for wish in wishes]
    asked = [token for lead, wish in zip(leads, wishes, strict=True) for token in (lead, *wish, *signs[","])]
    shown = [token for word in there for token in (*word, *signs[","])]
    said: list[int] = []
    for lead, wish, word in zip(leads, wishes, there, strict=True):
        said += [
            lead,
            *wish,
            *signs[","],
            *word,
            *signs[" want"],
            *wish,
            *signs[": yes," if word == wish else ": no,"],
        ]
        if word != wish:
            break
    return [*asked, *signs[", on"], *shown, *signs[". works."]], said


def _listing(
    rng: random.Random, words: list[Word], signs: dict[str, list[int]]
) -> tuple[list[int], list[int]]:
    """(a list and the word that is asked about, what is said of it) as tokens; the word is missing every
    second time.
    """
    listed = rng.sample(words, rng.randint(1, min(LONGEST_LIST, len(words) - 1)))
    missing = [word for word in words if word not in listed]
    word = rng.choice(missing) if missing and rng.random() < 0.5 else rng.choice(listed)
    flat = list(chain.from_iterable(listed))
    answer = signs[": yes," if word in listed else ": no,"]
    return [*flat, *signs[", on"], *word, *signs[". works."]], [*flat, *signs[" want"], *word, *answer]
