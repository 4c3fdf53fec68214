"""The editing exercise: its results are right, every form occurs, and only the result has loss."""

from __future__ import annotations

import pytest

from components.language.exercises.editing import LONGEST, MOST_CHANGES, ROUNDS, edit_examples
from components.language.exercises.words import POOL
from components.language.vocabulary.compact_vocabulary import CompactVocabulary


@pytest.fixture(scope="module")
def vocabulary():
    return CompactVocabulary.train(["a, less b, more c, now d, nothing"] * 9, 320)


def rounds(vocabulary, example):
    """(list and changes, result) of each round, as lists of tokens."""
    (segment,) = example.segments
    prompt = []
    result = []
    for token, has_loss in zip(segment.tokens[1:], segment.loss[1:], strict=True):
        if result and not has_loss:
            yield prompt, result
            prompt = []
            result = []
        (result if has_loss else prompt).append(token)
    yield prompt, result


def split(tokens, phrases):
    """The parts of `tokens` before and after a phrase; the second is None without the phrase."""
    for place in range(len(tokens) - len(phrases) + 1):
        if tokens[place : place + len(phrases)] == phrases:
            return tokens[:place], tokens[place + len(phrases) :]
    return tokens, None


def test_results_are_the_edited_lists(vocabulary):
    phrases = {
        text: vocabulary.encode_after_word(text) for text in (", less", ", more", ", now", ",", " nothing")
    }
    forms = set()
    count = 0
    for example in edit_examples(vocabulary, 30_000, seed=0):
        all_rounds = list(rounds(vocabulary, example))
        assert len(all_rounds) == ROUNDS
        for prompt, result in all_rounds:
            body, rest = split(prompt, phrases[", now"])
            assert rest == []
            body, more = split(body, phrases[", more"])
            listed, less = split(body, phrases[", less"])
            left = [word for word in listed if word not in (less or [])] + (more or [])
            assert result == (left or phrases[" nothing"]) + phrases[","]
            assert (
                1 <= len(listed) <= LONGEST
                and len(less or []) <= MOST_CHANGES
                and len(more or []) <= MOST_CHANGES
            )
            forms.add((less is None, more is None))
            count += 1
        assert (
            len({word for prompt, _ in all_rounds for word in prompt}.difference(*phrases.values())) <= POOL
        )
    assert count > 100 and forms == {(False, True), (True, False), (False, False)}


def test_the_same_seed_gives_the_same_examples(vocabulary):
    one, same, other = (edit_examples(vocabulary, 5_000, seed) for seed in (1, 1, 2))
    assert (
        [e.segments[0].tokens for e in one]
        == [e.segments[0].tokens for e in same]
        != [e.segments[0].tokens for e in other]
    )
