"""The exercise of recalling: what it asks, and that both sides of each comparison stand where the exercise
says.
"""

from __future__ import annotations

import pytest

from components.language.exercises.recalling import ROUNDS, recall_examples
from components.language.markers import TURN
from components.language.tokenizer import Vocabulary

WORDS = [
    f"{first}{second}"
    for first in ("ba", "du", "ke", "lo", "mi")
    for second in ("ra", "to", "ne", "sy", "pu", "gi")
]


@pytest.fixture(scope="module")
def vocabulary():
    return Vocabulary.train(
        [f"{word}, on {word}. works. {word} want {word}: yes, {word}: no," for word in WORDS], 400
    )


def rounds(vocabulary, example):
    """(what is shown, what is said of it) of each round, as tokens; the wishes stand in the first of what is
    shown.
    """
    (segment,) = example.segments
    assert segment.tokens[0] == vocabulary.marker_id(TURN) and not segment.loss[0]
    found, place = [], 1
    while place < len(segment.tokens):
        middle = place + segment.loss[place:].index(True)
        end = next(
            (at for at in range(middle, len(segment.tokens)) if not segment.loss[at]), len(segment.tokens)
        )
        found.append((segment.tokens[place:middle], segment.tokens[middle:end]))
        place = end
    return found


def parted(tokens, sign):
    """The tokens before the first `sign`, and those behind it."""
    at = next(at for at in range(len(tokens)) if tokens[at : at + len(sign)] == sign)
    return tokens[:at], tokens[at + len(sign) :]


def looks(vocabulary, said):
    """(what is there, what is wanted, yes or no) of each comparison; what is there of a wish begins with the
    wish itself.
    """
    yes, no = vocabulary.encode_after_word(": yes,"), vocabulary.encode_after_word(": no,")
    while said:
        there, rest = parted(said, vocabulary.encode_after_word(" want"))
        ends = [at for at in range(len(rest)) if rest[at : at + len(yes)] in (yes, no)]
        yield there, rest[: ends[0]], rest[ends[0] : ends[0] + len(yes)] == yes
        said = rest[ends[0] + len(yes) :]


def test_verdicts_are_true_and_end_with_the_first_no(vocabulary):
    answers, comma = [], vocabulary.encode_after_word(",")
    for example in recall_examples(vocabulary, 20_000, 0)[::2]:
        said = rounds(vocabulary, example)
        assert len(said) == ROUNDS
        for shown, text in said:
            asked, _ = parted(shown, vocabulary.encode_after_word(", on"))
            found = [(*parted(before, comma), wish, right) for before, wish, right in looks(vocabulary, text)]
            assert all((there == wish) == right and lead[1:] == wish for lead, there, wish, right in found)
            assert [token for lead, *_ in found for token in (*lead, *comma)] == asked[
                : sum(len(lead) + len(comma) for lead, *_ in found)
            ]
            assert all(right for *_, right in found[:-1])
            answers.append(found[-1][3])
    assert 0.3 < answers.count(False) / len(answers) < 0.6


def test_listings_are_told_as_they_are_and_half_of_the_words_are_missing(vocabulary):
    answers = []
    for example in recall_examples(vocabulary, 20_000, 0)[1::2]:
        for shown, text in rounds(vocabulary, example):
            listed, rest = parted(shown, vocabulary.encode_after_word(", on"))
            asked, _ = parted(rest, vocabulary.encode_after_word(". works."))
            ((told, wanted, right),) = looks(vocabulary, text)
            assert told == listed and wanted == asked
            answers.append(right)
    assert 0.4 < answers.count(False) / len(answers) < 0.6


def test_as_many_tokens_as_asked_for_and_the_same_of_the_same_seed(vocabulary):
    examples = recall_examples(vocabulary, 5000, 1)
    assert sum(map(len, examples)) >= 5000 > sum(map(len, examples[:-1]))
    assert examples == recall_examples(vocabulary, 5000, 1) != recall_examples(vocabulary, 5000, 2)
