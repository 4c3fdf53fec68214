"""The fused decoder gives the numbers of transformers, for prompts of any length and token by token."""

from __future__ import annotations

import pytest
import torch
from builders import make_model
from transformers import Qwen2Config, Qwen2ForCausalLM, Qwen3Config, Qwen3ForCausalLM

from components.config import LoraConfig
from components.language.adapters import add_lora, without_adapters
from components.language.engines.key_value_cache import KeptCache
from components.language.kernels.fused_decoder import FusedDecoder, Span, can_fuse

SHAPE = {
    "vocab_size": 340,
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 8,
    "max_position_embeddings": 600,
}


def make(family):
    torch.manual_seed(3)
    model = {
        "llama": lambda: make_model(hidden=32, scale=5.0),
        "qwen2": lambda: Qwen2ForCausalLM(Qwen2Config(**SHAPE, use_sliding_window=False)),
        "qwen3": lambda: Qwen3ForCausalLM(Qwen3Config(**SHAPE)),
    }[family]()
    for weight in model.parameters():  # also biases and norms, so that a forgotten one shows
        weight.data.add_(torch.randn_like(weight) * 0.1)
    return model.float().eval()


@torch.inference_mode()
@pytest.mark.parametrize("family", ["llama", "qwen2", "qwen3"])
def test_logits_equal_those_of_transformers(family):
    model = make(family)
    assert can_fuse(model)
    texts = torch.randint(0, 340, (3, 300))
    fused = FusedDecoder(model)
    cache = KeptCache(2, rows=4, capacity=8)
    plain = model(input_ids=texts).logits
    pieces = [
        (0, 0, 200),
        (2, 0, 1),
        (1, 0, 290),
        (0, 200, 60),
        (2, 1, 256),
    ]  # (row, start, length); slots differ from rows
    slot = [3, 0, 1]
    for part in (pieces[:3], pieces[3:]):
        ids = torch.cat([texts[row, start : start + length] for row, start, length in part])
        logits = fused.logits(ids, [Span(slot[row], start, length) for row, start, length in part], cache)
        for place, (row, start, length) in enumerate(part):
            torch.testing.assert_close(logits[place], plain[row, start + length - 1], atol=2e-4, rtol=1e-4)
    for step in range(5):  # rows 1 and 2 are in the slots 0 and 1: token by token
        rows = torch.tensor([1, 2])
        places = torch.tensor([290, 257]) + step
        logits = fused.logits(
            texts[rows, places], [Span(slot, place, 1) for slot, place in enumerate(places.tolist())], cache
        )
        torch.testing.assert_close(logits, plain[rows, places], atol=2e-4, rtol=1e-4)


def test_other_models_are_left_to_transformers():
    assert not can_fuse(make("llama").half())
    assert not can_fuse(without_adapters(add_lora(make("llama"), LoraConfig(rank=2))))
    assert not can_fuse(without_adapters(add_lora(make("llama"), LoraConfig(rank=2, targets=["down_proj"]))))
    scaled = make("llama")
    scaled.config.rope_parameters = {"rope_type": "dynamic", "rope_theta": 10000.0, "factor": 2.0}
    assert not can_fuse(scaled)
