"""The comparing exercise: its answers are right, half are no, and a transformer learns from it."""

from __future__ import annotations

import pytest
import torch

from components.config import BackboneConfig
from components.language.backbone import build_backbone
from components.language.exercises.comparing import ROUNDS, compare_examples
from components.language.exercises.words import POOL
from components.language.training.fine_tuning import supervised_finetune
from components.language.vocabulary.compact_vocabulary import CompactVocabulary


@pytest.fixture(scope="module")
def vocabulary():
    return CompactVocabulary.train(["a want: yes, no, want: yes, no,"] * 9, 320)


def is_question_at(tokens, i, want, yes, no):
    """True if the form of the question is at `i` (its words may be in the lists, too)."""
    start = i + len(want) + 1
    return tokens[i : i + len(want)] == want and any(
        tokens[start : start + len(answer)] == answer for answer in (yes, no)
    )


def rounds(vocabulary, example):
    """(listed, word, answer, whether only the answer has loss) of each round."""
    (segment,) = example.segments
    texts = [vocabulary.encode_after_word(part) for part in (" want", ": yes,", ": no,")]
    want, yes, no = texts
    place = 1
    while place < len(segment.tokens):
        question_start = next(
            i for i in range(place, len(segment.tokens)) if is_question_at(segment.tokens, i, want, yes, no)
        )
        word = segment.tokens[question_start + len(want)]
        start = question_start + len(want) + 1
        answer = yes if segment.tokens[start : start + len(yes)] == yes else no
        assert segment.tokens[start : start + len(answer)] == answer
        flags = segment.loss[place : start + len(answer)]
        yield (
            segment.tokens[place:question_start],
            word,
            answer is yes,
            flags.index(True) == start + 1 - place and sum(flags) == 1,
        )
        place = start + len(answer)


def test_answers_are_right_and_half_are_no(vocabulary):
    examples = compare_examples(vocabulary, 20_000, 5, seed=0)
    entries = [entry for example in examples for entry in rounds(vocabulary, example)]
    assert len(entries) == ROUNDS * len(examples) > 400
    assert all(answer == (word in listed) and flagged for listed, word, answer, flagged in entries)
    assert {len(listed) for listed, *_ in entries} == {1, 2, 3, 4, 5}
    assert 0.4 < sum(answer for _, _, answer, _ in entries) / len(entries) < 0.6


def test_words_of_earlier_lists_are_denied(vocabulary):
    """Most words that are not in their list were in an earlier one, so having read a word is not enough."""
    (example, *_) = compare_examples(vocabulary, 2000, 5, seed=0)
    earlier_words = set()
    was_earlier = []
    for listed, word, answer, _ in rounds(vocabulary, example):
        was_earlier += [] if answer else [word in earlier_words]
        earlier_words |= set(listed)
    assert sum(was_earlier) > len(was_earlier) / 2 and len(earlier_words) <= POOL


def test_the_same_seed_gives_the_same_examples(vocabulary):
    assert (
        compare_examples(vocabulary, 500, 3, 1)
        == compare_examples(vocabulary, 500, 3, 1)
        != compare_examples(vocabulary, 500, 3, 2)
    )


@pytest.mark.slow
def test_a_small_transformer_learns_to_compare_from_it(vocabulary):
    torch.set_num_threads(1)
    model = build_backbone(
        BackboneConfig(hidden=64, layers=2, heads=4, key_value_heads=2), len(vocabulary), seed=0
    )
    examples = compare_examples(vocabulary, 1_500_000, 1, seed=0)
    record = supervised_finetune(
        model, examples, epochs=1, learning_rate=1e-2, batch_tokens=3072, seed=0, optimizer="muon"
    )
    assert record.losses[0] > 0.5
    assert record.final_loss < 0.1
