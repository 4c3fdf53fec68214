"""Pairs of numbers and the question which is lower: the exercise from which a small transformer learns their
order.

The shop's dream granted purchases that cost more than was wanted, `for 112 want lower than 90: yes`: to a
vocabulary a number is a word like any other, and the trajectories compare few of them (docs/experiments).
"""

from __future__ import annotations

import random

from components.language.markers import TURN
from components.language.tokenizer import Vocabulary
from components.language.training.examples import Example, Segment

ROUNDS = 32
LARGEST, NEAR = 300, 20
"""The largest number, and how far from each other the two of every second question are at most."""


def magnitude_examples(vocabulary: Vocabulary, tokens: int, seed: int) -> list[Example]:
    """Examples of about `tokens` tokens in all: rounds of `for <number> want lower than <number>: yes,`, yes
    if it is not higher.

    The loss is on each answer's first token alone.
    """
    rng = random.Random(f"magnitudes/{seed}")
    numbers = [vocabulary.behind(f" {number}") for number in range(LARGEST + 1)]
    begins, asks = vocabulary.behind(" for"), vocabulary.behind(" want lower than")
    answers = {truth: vocabulary.behind(f": {'yes' if truth else 'no'},") for truth in (True, False)}
    examples: list[Example] = []
    made = 0
    while made < tokens:
        sequence, loss = [vocabulary.marker_id(TURN)], [False]
        for _ in range(ROUNDS):
            first = rng.randint(1, LARGEST)
            near = max(1, first - NEAR), min(LARGEST, first + NEAR)
            second = rng.randint(*near) if rng.random() < 0.5 else rng.randint(1, LARGEST)
            colon, answer, *rest = answers[first <= second]
            asked = [*begins, *numbers[first], *asks, *numbers[second], colon]
            sequence += [*asked, answer, *rest]
            loss += [False] * len(asked) + [True] + [False] * len(rest)
        examples.append(Example([Segment(sequence, loss)]))
        made += len(sequence)
    return examples
