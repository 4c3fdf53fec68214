"""The exercises of a phase: before the text, rehearsed within it, and as a measure of a model's skills."""

from __future__ import annotations

import math
from collections.abc import Callable
from itertools import chain
from typing import Any

import torch
from prefect import get_run_logger

from components.config import Config
from components.language.evaluation_mode import evaluating
from components.language.exercises.comparing import compare_examples
from components.language.exercises.copying import copy_examples
from components.language.exercises.editing import edit_examples
from components.language.exercises.magnitudes import magnitude_examples
from components.language.exercises.recalling import recall_examples
from components.language.exercises.rehearsal import LONGEST_LIST, rehearsal_examples
from components.language.training.examples import Example, batches, collate
from components.language.training.token_scores import token_logprobs
from components.language.vocabulary.compact_vocabulary import CompactVocabulary

SINGLE_WORD_SHARE = 0.25
"""Share of the comparing exercise whose lists have one word."""
LONGEST_COMPARED = 10
"""Most words of a list in the rest of that exercise."""
EARLIER_SEED = 100
"""Added to the seed of the earlier exercises that a later one rehearses."""
PROBE_TOKENS = 20_000
"""Tokens of each exercise that measures what a model can do."""
PROBE_SEED = 777
"""Seed of these exercises; no training has it."""
PROBE_BATCH_TOKENS = 3072

MakeExamples = Callable[[int, int], list[Example]]
"""Returns the examples of an exercise, given their tokens and a seed."""


def exercises_before_text(config: Config, vocabulary: CompactVocabulary) -> dict[str, list[Example]]:
    """Return exercise -> examples, in the order of training.

    The order is: copying, comparing single words, comparing lists, editing lists, numbers. With
    `exercise_rehearsal` each contains some of all earlier ones. Without it, later exercises undo the earlier.
    """
    settings = config.pretrain.phases[0]
    base_seed = config.pretrain.seed
    makers = _exercise_makers(config, vocabulary)
    exercises: dict[str, list[Example]] = {}
    for number, (name, (tokens, make)) in enumerate(makers.items()):
        if not tokens:
            continue
        rehearsed_tokens = int(settings.exercise_rehearsal * tokens / len(exercises)) if exercises else 0
        rehearsed: list[list[Example]] = []
        if rehearsed_tokens:
            seed = base_seed + EARLIER_SEED + number
            rehearsed = [makers[earlier][1](rehearsed_tokens, seed) for earlier in exercises]
        exercises[name] = [*make(tokens, base_seed), *chain.from_iterable(rehearsed)]
    return exercises


def _exercise_makers(config: Config, vocabulary: CompactVocabulary) -> dict[str, tuple[int, MakeExamples]]:
    """Return exercise -> its tokens, and the function that makes its examples."""
    settings = config.pretrain.phases[0]
    single_tokens = int(SINGLE_WORD_SHARE * settings.compare_tokens)
    return {
        "copying": (
            settings.copy_tokens,
            lambda tokens, seed: copy_examples(vocabulary, tokens, seed, repeats=settings.copy_repeats),
        ),
        "comparing-words": (
            single_tokens,
            lambda tokens, seed: compare_examples(vocabulary, tokens, 1, seed),
        ),
        "comparing-lists": (
            settings.compare_tokens - single_tokens,
            lambda tokens, seed: compare_examples(vocabulary, tokens, LONGEST_COMPARED, seed),
        ),
        "editing": (settings.edit_tokens, lambda tokens, seed: edit_examples(vocabulary, tokens, seed)),
        "numbers": (
            settings.number_tokens,
            lambda tokens, seed: magnitude_examples(vocabulary, tokens, seed),
        ),
    }


def rehearsal_in_text(config: Config, vocabulary: CompactVocabulary, tokens: int) -> list[Example]:
    """Return the exercises that are mixed into text.

    In text alone, only a few answers in a hundred tokens need what the exercises teach.

    Args:
        tokens: of the text.
    """
    settings = config.pretrain.phases[0]
    list_tokens = int(settings.rehearsal * tokens / 2)
    copied_tokens = int(settings.copy_rehearsal * tokens)
    recalled_tokens = int(settings.recall_rehearsal * tokens)
    return rehearsal_examples(
        vocabulary,
        list_tokens,
        copied_tokens,
        recalled_tokens,
        config.pretrain.seed + 1,
        repeats=settings.copy_repeats,
        numbers=settings.number_tokens > 0,
    )


def measure_skills(model: Any, vocabulary: CompactVocabulary) -> dict[str, float]:
    """Return exercise -> share of its answer tokens with more than half of the model's probability.

    The exercises are new ones. For comparing, the share is of questions `<list> want <word>`, half of which
    have the answer no. For copying, editing and recalling it is of tokens. The figures show what one
    exercise, or the text, undoes of another.
    """
    skills = {}
    with evaluating(model):
        for name, examples in _probes(vocabulary).items():
            groups = [
                collate(rows, vocabulary.pad_id).to(model.device)
                for rows in batches(examples, PROBE_BATCH_TOKENS, 0)
            ]
            is_right = torch.cat([token_logprobs(model, group).logprobs > math.log(0.5) for group in groups])
            skills[name] = round(is_right.float().mean().item(), 4)
    get_run_logger().info("share right of each exercise, comparing with the longest list: %s", skills)
    return skills


def _probes(vocabulary: CompactVocabulary) -> dict[str, list[Example]]:
    """Return exercise -> examples that measure it."""
    probes = {"copying": copy_examples(vocabulary, PROBE_TOKENS, PROBE_SEED)}
    probes["copying repeats"] = copy_examples(vocabulary, PROBE_TOKENS, PROBE_SEED, repeats=1.0)
    for length in (1, LONGEST_COMPARED, LONGEST_LIST):
        probes[f"comparing {length}"] = compare_examples(vocabulary, PROBE_TOKENS, length, PROBE_SEED)
    probes["editing"] = edit_examples(vocabulary, PROBE_TOKENS, PROBE_SEED)
    probes["recalling"] = recall_examples(vocabulary, PROBE_TOKENS, PROBE_SEED)
    probes["numbers"] = magnitude_examples(vocabulary, PROBE_TOKENS, PROBE_SEED)
    return probes
