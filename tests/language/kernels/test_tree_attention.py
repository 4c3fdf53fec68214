"""Tree attention gives the numbers of a dense mask, and computes far fewer pairs of tokens."""

import pytest
import torch

from components.config import BackboneConfig
from components.language.backbone import build_backbone
from components.language.kernels.tree_attention import TRUNK_RUN
from components.language.training.examples import Example, Segment, collate
from components.language.training.token_scores import token_logprobs

SIZE = 64


def make_example(seed, *parts):
    """Segments of the given lengths; a negative length is a branch. All after the first of the trunk have
    loss.
    """
    generator = torch.Generator().manual_seed(seed)
    segments: list[Segment] = []
    for part in parts:
        tokens = torch.randint(4, SIZE, (abs(part),), generator=generator).tolist()
        predictable = any(not segment.branch for segment in segments)
        segments.append(Segment(tokens, [predictable] * abs(part), part < 0))
    return Example(segments)


BATCHES = {
    "rows of their own shapes, one without branches": [
        make_example(0, 5, -7, 4, -2, -9, 3, -1, 6),
        make_example(1, 30),
        make_example(2, 3, -4, 0, -11),
        make_example(3, 2, -1, 1),
    ],
    "a trunk of several runs, many branches": [
        make_example(4, TRUNK_RUN + 3, *[-5, 11] * 14),
        make_example(5, 40, -60, TRUNK_RUN, -3),
    ],
    "a branch before the trunk": [make_example(6, -3, 4, -5, 2), make_example(7, 1, -1)],
}


def build(heads=4, key_value_heads=1, family="llama"):
    model = build_backbone(BackboneConfig(family=family, hidden=32, layers=2, heads=heads), SIZE, seed=0)
    if key_value_heads == 1:
        return model
    model.config.num_key_value_heads = key_value_heads
    torch.manual_seed(0)
    return type(model)(model.config)


def gradients(model, score):
    model.zero_grad()
    loss = -score.mean()
    loss.backward()
    return loss, [weight.grad.clone() for weight in model.parameters()]


def dense_logprobs(model, batch):
    """The reference: all pairs of tokens, most of them masked."""
    logits = model(
        input_ids=batch.input_ids, attention_mask=batch.attention, position_ids=batch.position_ids
    ).logits
    rows, columns = batch.rows, batch.columns
    predicted = logits[rows, batch.predecessor[rows, columns]].log_softmax(-1)
    return predicted.gather(1, batch.input_ids[rows, columns][:, None])[:, 0]


MODELS = {
    "llama": build(),
    "qwen": build(family="qwen"),
    "2 of 4": build(key_value_heads=2),
    "2 of 2": build(2, 2),
}


@pytest.mark.parametrize("model", MODELS.values(), ids=MODELS.keys())
@pytest.mark.parametrize("examples", BATCHES.values(), ids=BATCHES.keys())
def test_scores_and_gradients_equal_those_under_the_dense_mask(examples, model):
    batch = collate(examples, 0)
    assert batch.tree is not None
    logprobs = token_logprobs(model, batch).logprobs
    dense = dense_logprobs(model, batch)
    torch.testing.assert_close(logprobs, dense, atol=1e-5, rtol=0)
    loss, grads = gradients(model, logprobs)
    dense_loss, dense_grads = gradients(model, dense)
    torch.testing.assert_close(loss, dense_loss, atol=1e-5, rtol=0)
    for grad, dense_grad in zip(grads, dense_grads, strict=True):
        torch.testing.assert_close(grad, dense_grad, atol=1e-5, rtol=0)
    assert model.config._attn_implementation == "sdpa"


def test_far_fewer_pairs_are_computed_than_in_a_dense_mask():
    batch = collate([make_example(seed, 40, *[-80, 24] * 15) for seed in range(2)], 0)
    assert sum(mask.numel() for mask in batch.tree.masks) < 0.25 * batch.attention.numel()


def test_every_token_is_in_exactly_one_run():
    for examples in BATCHES.values():
        batch = collate(examples, 0)
        real = batch.real.flatten().nonzero()[:, 0]
        assert torch.equal(batch.tree.queries[batch.tree.places[real]], real)
