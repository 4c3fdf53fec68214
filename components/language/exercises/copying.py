"""Random sequences that come again: the exercise from which a small transformer learns to copy.

A dream is mostly copying: the goal, a name, the list of what lay in a place. The circuit for it (induction
heads, Olsson et al. 2022) forms within a million tokens of this exercise, and had not formed after eight
million of trajectories, whose lists are short, alike, and mixed with what cannot be known.
"""

from __future__ import annotations

import random
from itertools import chain

from components.language.markers import MARKERS, TURN
from components.language.tokenizer import Vocabulary
from components.language.training.examples import Example, Segment

SHORTEST, LONGEST, LARGEST_GAP = 8, 48, 32
FEWEST_WORDS, MOST_WORDS = 3, 12
"""Different tokens of a phrase whose tokens come again."""
IN_PARTS = 0.3
"""Share of these phrases that are of parts of letters."""


def copy_examples(vocabulary: Vocabulary, tokens: int, seed: int, *, repeats: float = 0.0) -> list[Example]:
    """Examples of about `tokens` tokens in all: a trunk of random tokens, and a branch that repeats its
    beginning, with loss there.

    A share `repeats` of the phrases has few different tokens, so that the one before does not tell which is
    next: of a name like `F2qBMU2` in letters, a model that has seen random phrases alone writes
    `F2qBMU2qBMU2`. Some of these are of parts of letters alone, as foreign scripts are, of which a vocabulary
    has no whole words.
    """
    rng = random.Random(f"copying/{seed}")
    markers = {vocabulary.marker_id(marker) for marker in MARKERS}
    words = [index for index in vocabulary.ids if index not in markers]
    parts = (
        [index for index in words if vocabulary.decode([index]) == "\N{REPLACEMENT CHARACTER}"]
        if repeats
        else []
    )
    turn, examples, made = vocabulary.marker_id(TURN), [], 0
    while made < tokens:
        few = _few(rng, words, parts) if repeats and rng.random() < repeats else []
        phrase, gap = (
            rng.choices(few or words, k=rng.randint(SHORTEST, LONGEST)),
            rng.choices(words, k=rng.randint(0, LARGEST_GAP)),
        )
        trunk, branch = list(chain(phrase, gap)), [turn, *phrase]
        # Which token comes first cannot be known; from the second on all can.
        loss = [False, False] + [True] * (len(phrase) - 1)
        examples.append(Example([Segment(trunk, [False] * len(trunk)), Segment(branch, loss, branch=True)]))
        made += len(trunk) + len(branch)
    return examples


def _few(rng: random.Random, words: list[int], parts: list[int]) -> list[int]:
    """Some tokens of `words`, or of `parts`."""
    chosen = parts if parts and rng.random() < IN_PARTS else words
    return rng.sample(chosen, min(len(chosen), rng.randint(FEWEST_WORDS, MOST_WORDS)))
