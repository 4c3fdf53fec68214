"""Lists of random words from which some leave and to which some come: the exercise from which a small
transformer learns to edit.

A dream that comes back to a place must show what lay there, less what was taken and more what was put there.
The teacher writes all of that down, `cup 1 pan 2 vase 1, less pan 2, now cup 1 vase 1`; a model of a million
parameters that had read 20 million tokens of trajectories found the right listing and the right changes every
time, and then copied the listing as it was (docs/experiments): to copy is what it had learnt first, and to
leave one out is another circuit.
"""

from __future__ import annotations

import random

from components.language.exercises.words import pools
from components.language.markers import TURN
from components.language.tokenizer import Vocabulary
from components.language.training.examples import Example, Segment

ROUNDS = 16
LONGEST = 10
MOST_CHANGES = 2


def edit_examples(vocabulary: Vocabulary, tokens: int, seed: int) -> list[Example]:
    """Examples of about `tokens` tokens in all: rounds of `<list>, less <some>, more <others>, now <the
    result>,`.

    One round in three only loses words, one only gains some, one does both. The loss is on the result alone,
    its end included.
    """
    rng = random.Random(f"editing/{seed}")
    signs = {text: vocabulary.behind(text) for text in (", less", ", more", ", now", ",", " nothing")}
    examples: list[Example] = []
    made = 0
    for pool in pools(vocabulary, rng, taken=frozenset[int]().union(*signs.values())):
        sequence, loss = [vocabulary.marker_id(TURN)], [False]
        for _ in range(ROUNDS):
            asked, result = _round(rng, pool, signs)
            sequence += asked + result
            loss += [False] * len(asked) + [True] * len(result)
        examples.append(Example([Segment(sequence, loss)]))
        made += len(sequence)
        if made >= tokens:
            break
    return examples


def _round(rng: random.Random, pool: list[int], signs: dict[str, list[int]]) -> tuple[list[int], list[int]]:
    """(list and changes, result) as tokens."""
    listed = rng.sample(pool, rng.randint(1, LONGEST))
    form = rng.choice(("less", "more", "both"))
    less = rng.sample(listed, min(len(listed), rng.randint(1, MOST_CHANGES))) if form != "more" else []
    others = [word for word in pool if word not in listed]
    more = rng.sample(others, rng.randint(1, MOST_CHANGES)) if form != "less" else []
    less = [word for word in listed if word in less]
    asked = (
        listed
        + (signs[", less"] + less if less else [])
        + (signs[", more"] + more if more else [])
        + signs[", now"]
    )
    left = [word for word in listed if word not in less] + more
    return asked, (left or signs[" nothing"]) + signs[","]
