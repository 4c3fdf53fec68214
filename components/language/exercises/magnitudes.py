"""Magnitudes: pairs of numbers, and the question which is lower.

The experience model of the shop granted purchases above the wanted price: `for 112 want lower than 90: yes`.
In a vocabulary a number is a word like any other, and the trajectories compare few of them
(docs/experiments).
"""

from __future__ import annotations

import random

from components.language.training.examples import Example, Segment
from components.language.vocabulary.compact_vocabulary import CompactVocabulary
from components.language.vocabulary.markers import TURN

ROUNDS = 32
LARGEST = 300
"""The largest number."""
NEAR = 20
"""Largest difference of the two numbers in half of the questions."""


def magnitude_examples(vocabulary: CompactVocabulary, tokens: int, seed: int) -> list[Example]:
    """Examples of rounds `for <number> want lower than <number>: yes,`, about `tokens` tokens in all.

    The answer is yes if the first number is not higher. Only the first token of an answer has loss.
    """
    rng = random.Random(f"magnitudes/{seed}")
    numbers = [vocabulary.encode_after_word(f" {number}") for number in range(LARGEST + 1)]
    opening = vocabulary.encode_after_word(" for")
    question = vocabulary.encode_after_word(" want lower than")
    answers = {
        truth: vocabulary.encode_after_word(f": {'yes' if truth else 'no'},") for truth in (True, False)
    }
    examples: list[Example] = []
    token_count = 0
    while token_count < tokens:
        sequence = [vocabulary.marker_id(TURN)]
        loss = [False]
        for _ in range(ROUNDS):
            first = rng.randint(1, LARGEST)
            near = max(1, first - NEAR), min(LARGEST, first + NEAR)
            second = rng.randint(*near) if rng.random() < 0.5 else rng.randint(1, LARGEST)
            colon, answer, *rest = answers[first <= second]
            prompt = [*opening, *numbers[first], *question, *numbers[second], colon]
            sequence += [*prompt, answer, *rest]
            loss += [False] * len(prompt) + [True] + [False] * len(rest)
        examples.append(Example([Segment(sequence, loss)]))
        token_count += len(sequence)
    return examples
