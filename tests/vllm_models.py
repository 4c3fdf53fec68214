"""Small random models for the tests of vLLM, and the comparison with plain transformers."""

from __future__ import annotations

import random

import pytest
import torch

from components.config import BackboneConfig
from components.language.backbone import build_backbone
from components.language.engines.vllm import library
from components.language.vocabulary.compact_vocabulary import CompactVocabulary

NEEDS_VLLM = pytest.mark.skipif(library.installed_version() is None, reason="needs make install VLLM=1")
SIZE = 300
VOCABULARY = CompactVocabulary.train(["put mug 1 in cabinet 2"], SIZE)


def make_model(family="llama", seed=1, scale=5.0, tied=True):
    """A random model with larger weights than usual, so that choices are far apart."""
    config = BackboneConfig(family=family, vocabulary=SIZE, hidden=64, layers=2, heads=2, max_positions=256)
    model = build_backbone(config, SIZE, seed=seed).eval()
    with torch.no_grad():
        for weight in model.parameters():
            if weight.dim() > 1:
                weight.mul_(scale)
    if not tied:
        model.lm_head.weight = torch.nn.Parameter(model.lm_head.weight.detach().clone() * 0.5)
        model.config.tie_word_embeddings = False
    return model


def make_prompts(rows, seed=0, longest=60):
    rng = random.Random(seed)
    return {row: [rng.randrange(11, SIZE) for _ in range(rng.randrange(1, longest))] for row in range(rows)}


def plain_logprobs(model, prefix, tokens, temperature=1.0, barred=()):
    with torch.no_grad():
        logits = model(input_ids=torch.tensor([prefix + tokens])).logits[0, len(prefix) - 1 : -1]
    logits[:, list(barred)] = float("-inf")
    return (logits / temperature).log_softmax(-1).gather(1, torch.tensor(tokens)[:, None])[:, 0]


def require_numbers_of(model, engine, temperature=1.0, barred=()):
    """What the engine samples has the log-probabilities of plain transformers, to 1e-3 nats."""
    prompts = make_prompts(5)
    out = engine.open(5).generate(prompts, stop=set(), max_new_tokens=12, temperature=temperature)
    for row, prompt in prompts.items():
        assert len(out[row].tokens) == 12 and not set(out[row].tokens) & set(barred)
        expected = plain_logprobs(model, prompt, out[row].tokens, temperature or 1.0, barred)
        torch.testing.assert_close(torch.tensor(out[row].logprobs), expected, atol=1e-3, rtol=0)


def perturb(model, size=0.05):
    with torch.no_grad():
        for weight in model.parameters():
            if weight.requires_grad:
                weight.add_(size * torch.randn(weight.shape, generator=torch.Generator().manual_seed(7)))
