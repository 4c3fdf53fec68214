"""The recalling exercise: both sides of each comparison are in the prompt, and the answers are right."""

from __future__ import annotations

import pytest

from components.language.exercises.recalling import ROUNDS, recall_examples
from components.language.vocabulary.compact_vocabulary import CompactVocabulary
from components.language.vocabulary.markers import TURN

WORDS = [
    f"{first}{second}"
    for first in ("ba", "du", "ke", "lo", "mi")
    for second in ("ra", "to", "ne", "sy", "pu", "gi")
]


@pytest.fixture(scope="module")
def vocabulary():
    return CompactVocabulary.train(
        [f"{word}, on {word}. works. {word} want {word}: yes, {word}: no," for word in WORDS], 400
    )


def rounds(vocabulary, example):
    """(prompt, answer) of each round, as tokens; the prompt of a wish round begins with the wishes."""
    (segment,) = example.segments
    assert segment.tokens[0] == vocabulary.marker_id(TURN) and not segment.loss[0]
    all_rounds = []
    start = 1
    while start < len(segment.tokens):
        middle = start + segment.loss[start:].index(True)
        end = next(
            (index for index in range(middle, len(segment.tokens)) if not segment.loss[index]),
            len(segment.tokens),
        )
        all_rounds.append((segment.tokens[start:middle], segment.tokens[middle:end]))
        start = end
    return all_rounds


def split_at(tokens, sign):
    """The tokens before the first `sign`, and those after it."""
    index = next(index for index in range(len(tokens)) if tokens[index : index + len(sign)] == sign)
    return tokens[:index], tokens[index + len(sign) :]


def comparisons(vocabulary, answer):
    """(item, wanted word, whether the answer is yes) of each comparison; in a wish round the item begins with
    the lead and the wish.
    """
    yes = vocabulary.encode_after_word(": yes,")
    no = vocabulary.encode_after_word(": no,")
    while answer:
        item, rest = split_at(answer, vocabulary.encode_after_word(" want"))
        ends = [index for index in range(len(rest)) if rest[index : index + len(yes)] in (yes, no)]
        yield item, rest[: ends[0]], rest[ends[0] : ends[0] + len(yes)] == yes
        answer = rest[ends[0] + len(yes) :]


def test_verdicts_are_true_and_end_with_the_first_no(vocabulary):
    answers = []
    comma = vocabulary.encode_after_word(",")
    for example in recall_examples(vocabulary, 20_000, 0)[::2]:
        all_rounds = rounds(vocabulary, example)
        assert len(all_rounds) == ROUNDS
        for prompt, answer in all_rounds:
            wish_tokens, _ = split_at(prompt, vocabulary.encode_after_word(", on"))
            verdicts = [
                (*split_at(before, comma), wish, is_yes)
                for before, wish, is_yes in comparisons(vocabulary, answer)
            ]
            assert all((item == wish) == is_yes and lead[1:] == wish for lead, item, wish, is_yes in verdicts)
            assert [token for lead, *_ in verdicts for token in (*lead, *comma)] == wish_tokens[
                : sum(len(lead) + len(comma) for lead, *_ in verdicts)
            ]
            assert all(is_yes for *_, is_yes in verdicts[:-1])
            answers.append(verdicts[-1][3])
    assert 0.3 < answers.count(False) / len(answers) < 0.6


def test_listings_are_repeated_unchanged_and_half_of_the_words_are_missing(vocabulary):
    answers = []
    for example in recall_examples(vocabulary, 20_000, 0)[1::2]:
        for prompt, answer in rounds(vocabulary, example):
            listed, rest = split_at(prompt, vocabulary.encode_after_word(", on"))
            word, _ = split_at(rest, vocabulary.encode_after_word(". works."))
            ((listed_again, wanted_word, is_yes),) = comparisons(vocabulary, answer)
            assert listed_again == listed and wanted_word == word
            answers.append(is_yes)
    assert 0.4 < answers.count(False) / len(answers) < 0.6


def test_the_token_count_is_as_requested_and_a_seed_gives_the_same_examples(vocabulary):
    examples = recall_examples(vocabulary, 5000, 1)
    assert sum(map(len, examples)) >= 5000 > sum(map(len, examples[:-1]))
    assert examples == recall_examples(vocabulary, 5000, 1) != recall_examples(vocabulary, 5000, 2)
