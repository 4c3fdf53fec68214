"""Generation the common way: transformers' own `generate` on full prompts, padded on the left, with the cache
of that one call.

The yardstick of the kept cache (`kept_cache.py`): `dreamgym bench dream` holds both against each other, in
speed and token for token.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from peft import PeftModel
from torch import Tensor
from transformers import GenerationConfig, PreTrainedModel

from components.language.adapters import without_adapters
from components.language.evaluation_mode import evaluating
from components.language.markers import MARKERS, PAD
from components.language.sampled_ids import unknown_ids


def plain_generate(
    model: PreTrainedModel | PeftModel, prompts: Sequence[list[int]], *, stop: set[int], max_new_tokens: int
) -> list[list[int]]:
    """For each prompt the tokens written behind it, greedily, the stop token included; one batch.

    Every setting of generation is set here: what the checkpoint's generation_config.json or config.json says
    (a penalty, beams, forced or suppressed tokens) would make it another distribution than the engine's.
    """
    generating: Any = without_adapters(model)
    pad, longest = MARKERS.index(PAD), max(map(len, prompts))
    ids = torch.tensor(
        [[pad] * (longest - len(prompt)) + prompt for prompt in prompts], device=generating.device
    )
    mask = torch.tensor(
        [[0] * (longest - len(prompt)) + [1] * len(prompt) for prompt in prompts], device=generating.device
    )
    settings = _greedy_settings(unknown_ids(generating), stop, pad, max_new_tokens)
    with evaluating(generating), _no_defaults(generating):
        out = generating.generate(input_ids=ids, attention_mask=mask, generation_config=settings)
    return [_until_stop(written, stop) for written in out[:, longest:].tolist()]


def _greedy_settings(
    unknown: Tensor | None, stop: set[int], pad: int, max_new_tokens: int
) -> GenerationConfig:
    return GenerationConfig(
        max_new_tokens=max_new_tokens,
        do_sample=False,
        eos_token_id=sorted(stop) or None,
        pad_token_id=pad,
        suppress_tokens=None if unknown is None else unknown.tolist(),
    )


@contextmanager
def _no_defaults(model: Any) -> Iterator[None]:
    """Within the block `model` has no generation settings of its own: transformers fills up with them
    whatever a caller leaves out.
    """
    before = model.generation_config
    model.generation_config = GenerationConfig()
    try:
        yield
    finally:
        model.generation_config = before


def choice_gap(model: PreTrainedModel | PeftModel, tokens: list[int], one: int, other: int) -> float:
    """How far apart in nats the model, reading `tokens` alone, holds two tokens that may come next."""
    reading: Any = model
    with evaluating(reading):
        logits = reading(input_ids=torch.tensor([tokens], device=reading.device)).logits[0, -1].double()
    return abs(float(logits[one] - logits[other]))


def _until_stop(tokens: list[int], stop: set[int]) -> list[int]:
    """`tokens` without the padding behind the first stop token."""
    end = next((place for place, token in enumerate(tokens) if token in stop), len(tokens) - 1)
    return tokens[: end + 1]
