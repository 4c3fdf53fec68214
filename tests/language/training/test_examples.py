"""Examples with branches: positions, masks and batches, compared with plain sequences."""

import pytest
import torch

from components.config import BackboneConfig
from components.language.backbone import build_backbone
from components.language.training.examples import Example, Segment, batches, collate

TRUNK = [[5, 6, 7], [8, 9], [10, 11, 12, 13]]
BRANCHES = [[20, 21, 22], [23, 24]]


def make_segment(tokens, branch=False, loss=True):
    return Segment(tokens, [loss] * len(tokens), branch)


def make_tree():
    """Trunk 3, branch 3, trunk 2, branch 2, trunk 4."""
    segments = [make_segment(TRUNK[0], loss=False)]
    for trunk, branch in zip(TRUNK[1:], BRANCHES, strict=True):
        segments += [make_segment(branch, branch=True), make_segment(trunk)]
    return Example(segments)


@pytest.mark.parametrize("family", ["llama", "qwen"])
def test_a_branch_sees_only_its_trunk_and_the_trunk_never_sees_a_branch(family):
    model = build_backbone(BackboneConfig(family=family, hidden=32, layers=2, heads=4), 64, seed=0).eval()
    plain = Example([make_segment([30, 31], loss=False), make_segment([32] * 30)])
    batch = collate([make_tree(), plain], pad_id=0)

    def alone(*parts):
        with torch.no_grad():
            return model(input_ids=torch.tensor([[token for part in parts for token in part]])).logits[0]

    with torch.no_grad():
        logits = model(
            input_ids=batch.input_ids, attention_mask=batch.attention, position_ids=batch.position_ids
        ).logits
    trunk = alone(*TRUNK)
    close = {"atol": 1e-4, "rtol": 0}
    torch.testing.assert_close(logits[0, 3:6], alone(TRUNK[0], BRANCHES[0])[3:], **close)
    torch.testing.assert_close(logits[0, 8:10], alone(TRUNK[0], TRUNK[1], BRANCHES[1])[5:], **close)
    torch.testing.assert_close(logits[0, [0, 1, 2, 6, 7, 10, 11, 12, 13]], trunk, **close)
    torch.testing.assert_close(logits[1], alone([30, 31], [32] * 30), **close)


def test_positions_predecessors_and_loss_follow_each_chain():
    batch = collate([make_tree()], pad_id=0)
    assert batch.position_ids[0].tolist() == [0, 1, 2, 3, 4, 5, 3, 4, 5, 6, 5, 6, 7, 8]
    assert batch.predecessor[0].tolist() == [0, 0, 1, 2, 3, 4, 2, 6, 7, 8, 7, 10, 11, 12]
    assert batch.rows.tolist() == [0] * 11 and batch.columns.tolist() == list(range(3, 14))
    assert batch.real.sum() == 14


def test_a_flag_of_loss_is_a_weight():
    batch = collate([Example([Segment([5, 6, 7, 8], [False, True, 0.0, 2.5])])], pad_id=0)
    assert batch.columns.tolist() == [1, 3]
    assert batch.loss_weights.tolist() == [1, 2.5]


def test_without_branches_no_mask_is_built():
    batch = collate(
        [
            Example([make_segment([5, 6], loss=False)]),
            Example([make_segment([5], loss=False), make_segment([7, 8])]),
        ],
        pad_id=3,
    )
    assert batch.attention is None
    assert batch.input_ids.tolist() == [[5, 6, 3], [5, 7, 8]]
    assert batch.real.tolist() == [[True, True, False], [True] * 3]


def test_loss_without_a_predecessor_is_refused():
    with pytest.raises(ValueError, match="no token before it"):
        collate([Example([make_segment([5, 6])])], pad_id=0)
    with pytest.raises(ValueError, match="2 tokens with 1 loss flags"):
        Segment([1, 2], [True])
    with pytest.raises(ValueError, match="no example"):
        collate([], pad_id=0)


def test_batches_contain_every_example_once_within_the_limit():
    examples = [
        Example([make_segment([7] * length, loss=False)]) for length in [3, 50, 8, 9, 2, 4, 30, 5, 5, 120]
    ]
    drawn_batches = list(batches(examples, 64, seed=1))
    assert sorted(id(example) for batch in drawn_batches for example in batch) == sorted(
        id(example) for example in examples
    )
    for batch in drawn_batches:
        assert len(batch) == 1 or max(map(len, batch)) * len(batch) <= 64
    assert drawn_batches == list(batches(examples, 64, seed=1))
    assert any(drawn_batches != list(batches(examples, 64, seed=seed)) for seed in range(2, 6))
