"""The magnitudes exercise: its answers are right, and a transformer learns the order of numbers from it."""

from __future__ import annotations

import re

import pytest
import torch

from components.config import BackboneConfig
from components.language.backbone import build_backbone
from components.language.evaluation_mode import evaluating
from components.language.exercises.magnitudes import LARGEST, ROUNDS, magnitude_examples
from components.language.training.examples import batches, collate
from components.language.training.fine_tuning import supervised_finetune
from components.language.training.token_scores import token_logprobs
from components.language.vocabulary.compact_vocabulary import CompactVocabulary


@pytest.fixture(scope="module")
def vocabulary():
    return CompactVocabulary.train(
        [f"for {number} want lower than {number}: yes, no" for number in range(LARGEST + 1)], 700
    )


def test_answers_are_true_and_only_answers_have_loss(vocabulary):
    examples = magnitude_examples(vocabulary, 20_000, seed=0)
    assert sum(map(len, examples)) >= 20_000 > sum(map(len, examples[:-1]))
    answers = []
    for example in examples:
        (segment,) = example.segments
        rounds = re.findall(
            r"for (\d+) want lower than (\d+): (yes|no),", vocabulary.decode(segment.tokens[1:])
        )
        assert len(rounds) == ROUNDS == sum(segment.loss)
        assert all((answer == "yes") == (int(first) <= int(second)) for first, second, answer in rounds)
        assert {
            vocabulary.decode([token]).strip()
            for token, flagged in zip(segment.tokens, segment.loss, strict=True)
            if flagged
        } == {
            "yes",
            "no",
        }
        answers += [answer for _, _, answer in rounds]
    assert 0.4 < answers.count("yes") / len(answers) < 0.6


def test_the_same_seed_gives_the_same_examples(vocabulary):
    assert (
        magnitude_examples(vocabulary, 500, 1)
        == magnitude_examples(vocabulary, 500, 1)
        != magnitude_examples(vocabulary, 500, 2)
    )


@pytest.mark.slow
def test_a_small_transformer_learns_the_order_of_numbers_from_it(vocabulary):
    torch.set_num_threads(1)
    model = build_backbone(
        BackboneConfig(hidden=64, layers=2, heads=4, key_value_heads=2), len(vocabulary), seed=0
    )
    examples = magnitude_examples(vocabulary, 1_500_000, seed=0)
    supervised_finetune(
        model, examples, epochs=1, learning_rate=1e-2, batch_tokens=3072, seed=0, optimizer="muon"
    )
    with evaluating(model):
        (batch,) = [collate(rows, 0) for rows in batches(magnitude_examples(vocabulary, 2500, 777), 3072, 0)]
        is_right = token_logprobs(model, batch).logprobs.exp() > 0.5
    assert is_right.float().mean() > 0.85
