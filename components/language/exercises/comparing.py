"""Random lists and the question whether a word is among them: the exercise from which a small transformer
learns to compare.

What a dream must refuse is what is not there: no such place in the room, no such thing in the listing,
another thing than the one wanted. The programmatic teacher writes both sides down, `cup 1 pan 2 want mug 1:
no`, and yet a model of a million parameters that had read 22 million tokens of trajectories answered such
questions no better than by chance, and went by what is usual. Single words first, the circuit forms within
half a million tokens of this exercise; lists take two million more (docs/experiments).
"""

from __future__ import annotations

import random

from components.language.exercises.words import pools
from components.language.markers import TURN
from components.language.tokenizer import Vocabulary
from components.language.training.examples import Example, Segment

ROUNDS = 24


def compare_examples(vocabulary: Vocabulary, tokens: int, longest: int, seed: int) -> list[Example]:
    """Examples of about `tokens` tokens in all: rounds of `<list> want <word>: yes,` with lists of 1 to
    `longest` random words.

    Half of the answers are no. The loss is on each answer's first token alone: what follows it is no news.
    """
    rng = random.Random(f"comparing/{longest}/{seed}")
    asks, answers = (
        vocabulary.behind(" want"),
        {truth: vocabulary.behind(f": {'yes' if truth else 'no'},") for truth in (True, False)},
    )
    examples: list[Example] = []
    made = 0
    for pool in pools(vocabulary, rng):
        sequence, loss = [vocabulary.marker_id(TURN)], [False]
        for _ in range(ROUNDS):
            listed = rng.choices(pool, k=rng.randint(1, longest))
            missing = [other for other in pool if other not in listed]
            word = rng.choice(listed) if rng.random() < 0.5 or not missing else rng.choice(missing)
            colon, first, *rest = answers[word in listed]
            sequence += [*listed, *asks, word, colon, first, *rest]
            loss += [False] * (len(listed) + len(asks) + 2) + [True] + [False] * len(rest)
        examples.append(Example([Segment(sequence, loss)]))
        made += len(sequence)
        if made >= tokens:
            break
    return examples
