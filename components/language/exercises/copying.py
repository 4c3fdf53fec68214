"""Copying: random sequences that occur twice.

Predicting a state is mostly copying: the goal, a name, the list of what lay in a place. The circuit for it
(induction heads, Olsson et al. 2022) forms within a million tokens of this exercise. It had not formed after
eight million tokens of trajectories: their lists are short, similar, and mixed with what cannot be predicted.
"""

from __future__ import annotations

import random
from itertools import chain

from components.language.training.examples import Example, Segment
from components.language.vocabulary.compact_vocabulary import CompactVocabulary
from components.language.vocabulary.markers import MARKERS, TURN

SHORTEST = 8
LONGEST = 48
"""Fewest and most tokens of a phrase."""
LARGEST_GAP = 32
"""Most random tokens between a phrase and its copy."""
FEWEST_WORDS = 3
MOST_WORDS = 12
"""Fewest and most distinct tokens of a phrase whose tokens repeat."""
IN_PARTS = 0.3
"""Share of these phrases that consist of parts of letters."""


def copy_examples(
    vocabulary: CompactVocabulary, tokens: int, seed: int, *, repeats: float = 0.0
) -> list[Example]:
    """Examples with a trunk of random tokens and a branch that repeats its start.

    The repetition has loss, except for its first token, which cannot be predicted.

    Args:
        vocabulary: the tokens to draw from.
        tokens: approximate length of all examples together.
        seed: of the random draws.
        repeats: share of phrases with few distinct tokens, in which the previous token does not determine the
            next one. A model that has seen other phrases only writes the name `F2qBMU2` as `F2qBMU2qBMU2`.
            Some of these phrases consist of parts of letters only, as text in foreign scripts does, for which
            a vocabulary has no whole words.
    """
    rng = random.Random(f"copying/{seed}")
    marker_ids = {vocabulary.marker_id(marker) for marker in MARKERS}
    words = [index for index in vocabulary.ids if index not in marker_ids]
    letter_parts = (
        [index for index in words if vocabulary.decode([index]) == "\N{REPLACEMENT CHARACTER}"]
        if repeats
        else []
    )
    turn = vocabulary.marker_id(TURN)
    examples: list[Example] = []
    token_count = 0
    while token_count < tokens:
        few_words = _draw_few_words(rng, words, letter_parts) if repeats and rng.random() < repeats else []
        phrase = rng.choices(few_words or words, k=rng.randint(SHORTEST, LONGEST))
        gap = rng.choices(words, k=rng.randint(0, LARGEST_GAP))
        trunk = list(chain(phrase, gap))
        branch = [turn, *phrase]
        loss = [False, False] + [True] * (len(phrase) - 1)
        examples.append(Example([Segment(trunk, [False] * len(trunk)), Segment(branch, loss, branch=True)]))
        token_count += len(trunk) + len(branch)
    return examples


def _draw_few_words(rng: random.Random, words: list[int], letter_parts: list[int]) -> list[int]:
    """`FEWEST_WORDS` to `MOST_WORDS` distinct tokens of `words`, or of `letter_parts`."""
    source = letter_parts if letter_parts and rng.random() < IN_PARTS else words
    return rng.sample(source, min(len(source), rng.randint(FEWEST_WORDS, MOST_WORDS)))
