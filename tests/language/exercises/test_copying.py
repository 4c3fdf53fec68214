"""The copying exercise: its form, and that a transformer learns from it to copy new phrases."""

from __future__ import annotations

from itertools import pairwise

import pytest
import torch

from components.config import BackboneConfig
from components.language.backbone import build_backbone
from components.language.exercises.copying import copy_examples
from components.language.training.fine_tuning import supervised_finetune
from components.language.vocabulary.compact_vocabulary import CompactVocabulary
from components.language.vocabulary.markers import MARKERS


@pytest.fixture(scope="module")
def vocabulary():
    return CompactVocabulary.train(["a mug on a desk"], 300)


def test_a_branch_repeats_the_start_of_the_trunk_and_has_loss_where_it_is_predictable(vocabulary):
    examples = copy_examples(vocabulary, 5000, seed=0)
    assert sum(map(len, examples)) >= 5000 > sum(map(len, examples[:-1]))
    for example in examples:
        trunk, branch = example.segments
        assert branch.tokens[1:] == trunk.tokens[: len(branch.tokens) - 1]
        assert branch.loss == [False, False] + [True] * (len(branch.tokens) - 2) and not any(trunk.loss)
        assert not {vocabulary.marker_id(marker) for marker in MARKERS} & set(trunk.tokens)


def test_the_same_seed_gives_the_same_examples(vocabulary):
    assert (
        copy_examples(vocabulary, 500, seed=1)
        == copy_examples(vocabulary, 500, seed=1)
        != copy_examples(vocabulary, 500, seed=2)
    )


def test_phrases_of_few_words_repeat_them(vocabulary):
    examples = copy_examples(vocabulary, 20_000, seed=0, repeats=1.0)
    phrases = [example.segments[1].tokens[1:] for example in examples]
    assert all(len(set(phrase)) <= 12 for phrase in phrases)
    ambiguous = [phrase for phrase in phrases if len(set(pairwise(phrase))) > len(set(phrase))]
    assert len(ambiguous) > 0.9 * len(phrases)  # one word is followed by different words
    have_few_words = [
        len(set(e.segments[1].tokens)) <= 13 < len(e.segments[1].tokens)
        for e in copy_examples(vocabulary, 20_000, 0, repeats=0.5)
    ]
    assert 0.2 < sum(have_few_words) / len(have_few_words) < 0.6


@pytest.mark.slow
def test_a_small_transformer_learns_to_copy_from_it(vocabulary):
    torch.set_num_threads(1)
    model = build_backbone(
        BackboneConfig(hidden=64, layers=2, heads=4, key_value_heads=2), len(vocabulary), seed=0
    )
    examples = copy_examples(vocabulary, 1_500_000, seed=0)
    record = supervised_finetune(
        model, examples, epochs=1, learning_rate=1e-2, batch_tokens=3072, seed=0, optimizer="muon"
    )
    assert record.losses[0] > 4
    assert record.final_loss < 0.5
