"""Rehearsal: a mixture of all exercises for the data that a backbone is trained on later.

Without it, later training undoes what the exercises have taught.
"""

from __future__ import annotations

from components.errors import ConfigError
from components.language.exercises.comparing import compare_examples
from components.language.exercises.copying import copy_examples
from components.language.exercises.editing import edit_examples
from components.language.exercises.magnitudes import magnitude_examples
from components.language.exercises.recalling import recall_examples
from components.language.training.examples import Example
from components.language.vocabulary.compact_vocabulary import CompactVocabulary
from components.language.vocabulary.vocabulary import Vocabulary

LONGEST_LIST = 20
"""Most words of a list that is compared with a word."""
NUMBERS = 4
"""Numbers are sampled 1/NUMBERS as often as comparing, in tokens."""
REPEATS = 0.5
"""Default share of copying whose phrases have few distinct tokens."""


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
    """A mixture of exercises; the same seed gives the same examples.

    Args:
        vocabulary: the tokens to draw from.
        lists: tokens of comparing, and as many of editing.
        copied: tokens of copying.
        recalled: tokens of recalling.
        seed: of the random draws.
        repeats: as in `copy_examples`.
        numbers: add `lists / NUMBERS` tokens of magnitudes.

    Raises:
        ConfigError: exercises of another format than compact are asked for.
    """
    if not isinstance(vocabulary, CompactVocabulary):
        raise ConfigError(
            f"Exercises are asked for, and the model has the format {vocabulary.format}.",
            "Only a small backbone of the format compact is taught by exercises.",
            "Set experience_model.rehearsal=0.",
        )
    examples: list[Example] = []
    if lists:
        examples += compare_examples(vocabulary, lists, LONGEST_LIST, seed)
        examples += edit_examples(vocabulary, lists, seed)
        examples += magnitude_examples(vocabulary, lists // NUMBERS, seed) if numbers else []
    if copied:
        examples += copy_examples(vocabulary, copied, seed, repeats=repeats)
    return examples + (recall_examples(vocabulary, recalled, seed) if recalled else [])
