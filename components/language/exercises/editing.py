"""Editing: lists of random words from which some are removed and to which some are added.

When an agent comes back to a place, the predicted state must list what lay there, less what was taken, plus
what was put there. The teacher writes all of it down: `cup 1 pan 2 vase 1, less pan 2, now cup 1 vase 1`. A
model of a million parameters had read 20 million tokens of trajectories. It found the right list and the
right changes every time, and then copied the list unchanged (docs/experiments). It had learnt to copy
first, and leaving a word out is another circuit.
"""

from __future__ import annotations

import random

from components.language.exercises.words import word_pools
from components.language.training.examples import Example, Segment
from components.language.vocabulary.compact_vocabulary import CompactVocabulary
from components.language.vocabulary.markers import TURN

ROUNDS = 16
LONGEST = 10
"""Most words of a list."""
MOST_CHANGES = 2
"""Most words that one round removes, or adds."""
PHRASES = (", less", ", more", ", now", ",", " nothing")


def edit_examples(vocabulary: CompactVocabulary, tokens: int, seed: int) -> list[Example]:
    """Examples of rounds `<list>, less <some>, more <others>, now <result>,`, `tokens` tokens in all.

    A third of the rounds only removes words, a third only adds some, a third does both. The result has loss,
    its end included.
    """
    rng = random.Random(f"editing/{seed}")
    phrases = {text: vocabulary.encode_after_word(text) for text in PHRASES}
    excluded = frozenset[int]().union(*phrases.values())
    examples: list[Example] = []
    token_count = 0
    for pool in word_pools(vocabulary, rng, excluded=excluded):
        sequence = [vocabulary.marker_id(TURN)]
        loss = [False]
        for _ in range(ROUNDS):
            prompt, result = _edit_round(rng, pool, phrases)
            sequence += prompt + result
            loss += [False] * len(prompt) + [True] * len(result)
        examples.append(Example([Segment(sequence, loss)]))
        token_count += len(sequence)
        if token_count >= tokens:
            break
    return examples


def _edit_round(
    rng: random.Random, pool: list[int], phrases: dict[str, list[int]]
) -> tuple[list[int], list[int]]:
    """(list and changes, result) as tokens."""
    words = rng.sample(pool, rng.randint(1, LONGEST))
    form = rng.choice(("less", "more", "both"))
    removed = rng.sample(words, min(len(words), rng.randint(1, MOST_CHANGES))) if form != "more" else []
    others = [word for word in pool if word not in words]
    added = rng.sample(others, rng.randint(1, MOST_CHANGES)) if form != "less" else []
    removed = [word for word in words if word in removed]
    prompt = (
        words
        + (phrases[", less"] + removed if removed else [])
        + (phrases[", more"] + added if added else [])
        + phrases[", now"]
    )
    result = [word for word in words if word not in removed] + added
    return prompt, (result or phrases[" nothing"]) + phrases[","]
