"""The narrow last block equals the full decoder, gradients included; unknown models are left alone."""

import pytest
import torch

from components.config import BackboneConfig, LoraConfig
from components.language.adapters import add_lora, without_adapters
from components.language.backbone import build_backbone
from components.language.kernels.last_block import can_narrow, hidden_at
from components.language.training.examples import Example, Segment, collate
from components.language.training.token_scores import token_logprobs

SIZE = 64


def make_example(seed, *parts):
    """Segments of the given lengths; a negative one is predicted."""
    generator = torch.Generator().manual_seed(seed)
    return Example(
        [
            Segment(torch.randint(4, SIZE, (abs(n),), generator=generator).tolist(), [n < 0] * abs(n))
            for n in parts
        ]
    )


BATCH = collate(
    [make_example(0, 5, -2, 9, -3), make_example(1, 30, -1), make_example(2, 3, -11, 2), make_example(3, 4)],
    0,
)
"""Rows of different lengths; one predicts nothing."""


def build(family, checkpointing=False, **settings):
    shape = {
        "hidden": 32,
        "layers": 3,
        "heads": 4,
        "key_value_heads": 2,
        "family": family,
        "gradient_checkpointing": checkpointing,
    }
    model = build_backbone(BackboneConfig(**shape), SIZE, seed=0)
    return add_lora(model, LoraConfig(**settings)) if settings else model


def full_logprobs(model, batch):
    """The reference: every token through every block."""
    rows, columns = batch.rows, batch.columns
    states = (
        without_adapters(model).get_decoder()(input_ids=batch.input_ids, use_cache=False).last_hidden_state
    )
    predicted = (
        without_adapters(model)
        .get_output_embeddings()(states[rows, batch.predecessor[rows, columns]])
        .log_softmax(-1)
    )
    return predicted.gather(1, batch.input_ids[rows, columns][:, None])[:, 0]


def gradients(model, logprobs):
    model.zero_grad()
    (logprobs * torch.linspace(-1, 1, len(logprobs))).sum().backward()
    return {name: weight.grad.clone() for name, weight in model.named_parameters() if weight.grad is not None}


MODELS = {
    "llama": build("llama"),
    "qwen": build("qwen"),
    "with adapters": build("llama", rank=2, targets="all-linear"),
    "blocks computed again": build("qwen", checkpointing=True),
}


@pytest.mark.parametrize("model", MODELS.values(), ids=MODELS.keys())
def test_scores_and_gradients_equal_those_of_the_full_decoder(model):
    model.train()
    assert can_narrow(without_adapters(model))
    logprobs = token_logprobs(model, BATCH).logprobs
    expected = full_logprobs(model, BATCH)
    torch.testing.assert_close(logprobs, expected)
    ours = gradients(model, logprobs)
    theirs = gradients(model, expected)
    assert ours.keys() == theirs.keys() and ours
    for name, gradient in theirs.items():
        torch.testing.assert_close(ours[name], gradient, msg=name)


def test_a_hidden_state_does_not_depend_on_later_tokens():
    model = MODELS["llama"].eval()
    other = BATCH.input_ids.clone()
    rows = torch.tensor([0, 0, 2])
    places = torch.tensor([3, 8, 5])
    other[0, 9:] = 7
    other[2, 6:] = 7
    here, there = (hidden_at(model, ids, rows, places, 2) for ids in (BATCH.input_ids, other))
    assert torch.equal(here, there)


def test_another_attention_is_left_to_transformers():
    model = build("llama")
    model.config._attn_implementation = "eager"
    assert not can_narrow(model)
    torch.testing.assert_close(token_logprobs(model, BATCH).logprobs, full_logprobs(model, BATCH))
