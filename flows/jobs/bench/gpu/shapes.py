"""Models of random weights in the shapes that `dreamgym bench gpu` measures, and their examples."""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Any

import torch
from transformers import AutoModelForCausalLM, LlamaConfig, Qwen2Config

from components.config import LoraConfig
from components.language.adapters import add_lora
from components.language.compute import Compute
from components.language.training.examples import Example, Segment

LOSS_SHARE = 0.25
"""Share of the tokens of an example that are predicted: the assistant's turns of an episode."""


@dataclass(frozen=True)
class Shape:
    """A model to measure.

    Args:
        name: in the names of the figures.
        config: of transformers.
        lora: adapters that are trained; with rank 0 all weights are.
        length: most tokens of a training example; they have a quarter of it up to all.
        batch_tokens: tokens of an update.
        rows: rollouts that are decoded together.
        prompt: tokens of a rollout's first prompt, and of what a turn adds.
        new: tokens of a reply.
    """

    name: str
    config: Any
    lora: LoraConfig
    length: int = 2048
    batch_tokens: int = 16_384
    rows: int = 256
    prompt: int = 512
    turn: int = 40
    new: int = 40

    def model(self, compute: Compute) -> Any:
        """A model of random weights on the device of `compute`, with adapters if the shape has them."""
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            model = AutoModelForCausalLM.from_config(self.config, dtype=torch.float32)
        return add_lora(model.to(compute.device), self.lora, frozen=compute.frozen)

    def examples(self, count: int) -> list[Example]:
        """Examples of random tokens and different lengths; every fourth token is predicted."""
        stream = random.Random(0)
        every = round(1 / LOSS_SHARE)
        lengths = [stream.randint(self.length // 4, self.length) for _ in range(count)]
        return [
            Example([Segment(self.tokens(stream, length), [n > 0 and n % every == 0 for n in range(length)])])
            for length in lengths
        ]

    def tokens(self, stream: random.Random, count: int) -> list[int]:
        """Random ids."""
        return [stream.randrange(3, self.config.vocab_size) for _ in range(count)]


SMOLLM2 = Shape(
    "135m",
    LlamaConfig(
        vocab_size=49_152,
        hidden_size=576,
        intermediate_size=1536,
        num_hidden_layers=30,
        num_attention_heads=9,
        num_key_value_heads=3,
        max_position_embeddings=8192,
        tie_word_embeddings=True,
    ),
    LoraConfig(),
)
QWEN = Shape(
    "1.5b",
    Qwen2Config(
        vocab_size=151_936,
        hidden_size=1536,
        intermediate_size=8960,
        num_hidden_layers=28,
        num_attention_heads=12,
        num_key_value_heads=2,
        max_position_embeddings=8192,
        tie_word_embeddings=True,
    ),
    LoraConfig(rank=16, targets="all-linear"),
)
TINY = Shape(
    "tiny",
    LlamaConfig(
        vocab_size=320,
        hidden_size=64,
        intermediate_size=128,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=1,
        max_position_embeddings=512,
        tie_word_embeddings=True,
    ),
    LoraConfig(),
    length=64,
    batch_tokens=256,
    rows=4,
    prompt=16,
    turn=4,
    new=4,
)
SHAPES = (SMOLLM2, QWEN)
