"""The editing exercise: its results are right, every form comes up, and the loss is on the result alone."""

from __future__ import annotations

import pytest

from components.language.exercises.editing import LONGEST, MOST_CHANGES, ROUNDS, edit_examples
from components.language.exercises.words import POOL
from components.language.tokenizer import Vocabulary


@pytest.fixture(scope="module")
def vocabulary():
    return Vocabulary.train(["a, less b, more c, now d, nothing"] * 9, 320)


def rounds(vocabulary, example):
    """(what was listed and changed, the result) of each round, as lists of tokens."""
    (segment,) = example.segments
    asked, result = [], []
    for token, wanted in zip(segment.tokens[1:], segment.loss[1:], strict=True):
        if result and not wanted:
            yield asked, result
            asked, result = [], []
        (result if wanted else asked).append(token)
    yield asked, result


def split(tokens, sign):
    """The parts of `tokens` before and behind the sign, a run of tokens; the second is None where it does not
    stand there.
    """
    for place in range(len(tokens) - len(sign) + 1):
        if tokens[place : place + len(sign)] == sign:
            return tokens[:place], tokens[place + len(sign) :]
    return tokens, None


def test_the_results_are_the_lists_edited(vocabulary):
    sign = {
        text: vocabulary.encode_after_word(text) for text in (", less", ", more", ", now", ",", " nothing")
    }
    forms, count = set(), 0
    for example in edit_examples(vocabulary, 30_000, seed=0):
        found = list(rounds(vocabulary, example))
        assert len(found) == ROUNDS
        for asked, result in found:
            body, rest = split(asked, sign[", now"])
            assert rest == []
            body, more = split(body, sign[", more"])
            listed, less = split(body, sign[", less"])
            left = [word for word in listed if word not in (less or [])] + (more or [])
            assert result == (left or sign[" nothing"]) + sign[","]
            assert (
                1 <= len(listed) <= LONGEST
                and len(less or []) <= MOST_CHANGES
                and len(more or []) <= MOST_CHANGES
            )
            forms.add((less is None, more is None))
            count += 1
        assert len({word for asked, _ in found for word in asked}.difference(*sign.values())) <= POOL
    assert count > 100 and forms == {(False, True), (True, False), (False, False)}


def test_the_same_seed_gives_the_same_examples(vocabulary):
    one, same, other = (edit_examples(vocabulary, 5_000, seed) for seed in (1, 1, 2))
    assert (
        [e.segments[0].tokens for e in one]
        == [e.segments[0].tokens for e in same]
        != [e.segments[0].tokens for e in other]
    )
