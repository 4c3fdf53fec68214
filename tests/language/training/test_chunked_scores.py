"""Scores of a large vocabulary are computed in chunks: the same values and gradients, without all logits."""

from __future__ import annotations

import pytest
import torch
from builders import make_model

from components.language.training import token_scores
from components.language.training.examples import Example, Segment, collate
from components.language.training.token_scores import token_logprobs

EXAMPLES = [
    Example([Segment(list(range(20, 40)), [False] * 8 + [True] * 12)]),
    Example([Segment(list(range(50, 60)), [False] * 4 + [True] * 6)]),
]


def scores_and_gradient(monkeypatch, logits, branches):
    monkeypatch.setattr(token_scores, "MAX_LOGITS", logits)
    model = make_model(scale=4.0)
    examples = [*EXAMPLES]
    if branches:
        branch = Segment(list(range(60, 70)), [False] * 5 + [True] * 5, branch=True)
        examples = [Example([*example.segments, branch]) for example in EXAMPLES]
    scores = token_logprobs(model, collate(examples, 0), temperature=0.7, with_entropy=True, with_hidden=True)
    (-scores.logprobs.sum()).backward()
    return scores, [weight.grad for weight in model.parameters()]


@pytest.mark.parametrize("branches", [False, True], ids=["plain", "branches"])
@pytest.mark.parametrize("tokens", [1, 5])
def test_chunks_give_the_same_scores_and_gradients(monkeypatch, tokens, branches):
    rows = make_model().get_input_embeddings().weight.shape[0]
    whole, gradients = scores_and_gradient(monkeypatch, 1 << 25, branches)
    chunked, chunked_gradients = scores_and_gradient(monkeypatch, tokens * rows, branches)
    torch.testing.assert_close(chunked.logprobs, whole.logprobs)
    torch.testing.assert_close(chunked.entropies, whole.entropies)
    assert torch.equal(chunked.hidden, whole.hidden) and not chunked.entropies.requires_grad
    for one, other in zip(chunked_gradients, gradients, strict=True):
        torch.testing.assert_close(one, other, atol=1e-6, rtol=1e-4)
