"""The exercises of a backbone mixed into the texts that it reads, so that what they taught is not undone."""

from __future__ import annotations

from components.language.exercises.comparing import compare_examples
from components.language.exercises.copying import copy_examples
from components.language.exercises.editing import edit_examples
from components.language.exercises.magnitudes import magnitude_examples
from components.language.exercises.recalling import recall_examples
from components.language.tokenizer import Vocabulary
from components.language.training.examples import Example

LONGEST_LIST = 20
"""The longest list that is compared with a word."""
NUMBERS = 4
"""Numbers are rehearsed a so-manieth as often as comparing."""
REPEATS = 0.5
"""Share of the copying with few different words, where nothing else is said."""


def rehearsal_examples(
    vocabulary: Vocabulary,
    lists: int,
    copied: int,
    recalled: int,
    seed: int,
    *,
    repeats: float = REPEATS,
    numbers: bool = True,
) -> list[Example]:
    """About `lists` tokens of comparing, as many of editing, `copied` of copying, `recalled` of recalling;
    numbers too, if `numbers`.

    Args: repeats: the share of copying that `copy_examples` takes; seed: the same seed gives the same
    examples.
    """
    found: list[Example] = []
    if lists:
        found += compare_examples(vocabulary, lists, LONGEST_LIST, seed)
        found += edit_examples(vocabulary, lists, seed)
        found += magnitude_examples(vocabulary, lists // NUMBERS, seed) if numbers else []
    if copied:
        found += copy_examples(vocabulary, copied, seed, repeats=repeats)
    return found + (recall_examples(vocabulary, recalled, seed) if recalled else [])
