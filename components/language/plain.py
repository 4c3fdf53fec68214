"""Generation the common way: transformers' own `generate` on full prompts, padded on the left, with the cache of that one call.

The yardstick of the kept cache (`engine.py`): `dreamgym bench dream` holds both against each other, in speed and token for token.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from peft import PeftModel
from transformers import PreTrainedModel

from components.language.attention import evaluating
from components.language.markers import MARKERS, PAD


def plain_generate(
    model: PreTrainedModel | PeftModel, prompts: Sequence[list[int]], *, stop: set[int], max_new_tokens: int
) -> list[list[int]]:
    """For each prompt the tokens written behind it, greedily, the stop token included; one batch, all settings as they come."""
    pad, longest = MARKERS.index(PAD), max(map(len, prompts))
    ids = torch.tensor([[pad] * (longest - len(prompt)) + prompt for prompt in prompts])
    mask = torch.tensor([[0] * (longest - len(prompt)) + [1] * len(prompt) for prompt in prompts])
    generating: Any = model
    with evaluating(generating):
        out = generating.generate(
            input_ids=ids, attention_mask=mask, max_new_tokens=max_new_tokens, do_sample=False, eos_token_id=sorted(stop), pad_token_id=pad
        )
    return [_until_stop(written, stop) for written in out[:, longest:].tolist()]


def choice_gap(model: PreTrainedModel | PeftModel, tokens: list[int], one: int, other: int) -> float:
    """How far apart in nats the model, reading `tokens` alone, holds two tokens that may come next."""
    reading: Any = model
    with evaluating(reading):
        logits = reading(input_ids=torch.tensor([tokens])).logits[0, -1].double()
    return abs(float(logits[one] - logits[other]))


def _until_stop(tokens: list[int], stop: set[int]) -> list[int]:
    """`tokens` without the padding behind the first stop token."""
    end = next((place for place, token in enumerate(tokens) if token in stop), len(tokens) - 1)
    return tokens[: end + 1]
