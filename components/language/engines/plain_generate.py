"""Generation by transformers' own `generate`: full prompts, padded on the left, a new cache for each call.

The kept cache (`kept_cache.py`) is measured against it: `dreamgym bench dream` compares both in speed and
token by token.
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
from components.language.sampled_ids import unknown_ids
from components.language.vocabulary.markers import MARKERS, PAD


def plain_generate(
    model: PreTrainedModel | PeftModel, prompts: Sequence[list[int]], *, stop: set[int], max_new_tokens: int
) -> list[list[int]]:
    """The greedy continuation of each prompt, the stop token included; all prompts in one batch.

    Every setting of generation is set here. A setting of the checkpoint's generation_config.json or
    config.json (a penalty, beams, forced or suppressed tokens) would make it another distribution than the
    engine's.
    """
    inner: Any = without_adapters(model)
    pad_id = MARKERS.index(PAD)
    longest = max(map(len, prompts))
    ids = torch.tensor(
        [[pad_id] * (longest - len(prompt)) + prompt for prompt in prompts], device=inner.device
    )
    mask = torch.tensor(
        [[0] * (longest - len(prompt)) + [1] * len(prompt) for prompt in prompts], device=inner.device
    )
    settings = _greedy_settings(unknown_ids(inner), stop, pad_id, max_new_tokens)
    with evaluating(inner), _without_default_settings(inner):
        output = inner.generate(input_ids=ids, attention_mask=mask, generation_config=settings)
    return [_until_stop(continuation, stop) for continuation in output[:, longest:].tolist()]


def _greedy_settings(
    unknown: Tensor | None, stop: set[int], pad_id: int, max_new_tokens: int
) -> GenerationConfig:
    return GenerationConfig(
        max_new_tokens=max_new_tokens,
        do_sample=False,
        eos_token_id=sorted(stop) or None,
        pad_token_id=pad_id,
        suppress_tokens=None if unknown is None else unknown.tolist(),
    )


@contextmanager
def _without_default_settings(model: Any) -> Iterator[None]:
    """Remove the generation settings of `model` within the block.

    transformers takes from them whatever the caller does not set.
    """
    before = model.generation_config
    model.generation_config = GenerationConfig()
    try:
        yield
    finally:
        model.generation_config = before


def choice_gap(model: PreTrainedModel | PeftModel, tokens: list[int], one: int, other: int) -> float:
    """The difference in nats between two candidates for the next token after `tokens`."""
    callable_model: Any = model
    with evaluating(callable_model):
        ids = torch.tensor([tokens], device=callable_model.device)
        logits = callable_model(input_ids=ids).logits[0, -1].double()
    return abs(float(logits[one] - logits[other]))


def _until_stop(tokens: list[int], stop: set[int]) -> list[int]:
    """`tokens` up to the first stop token; the padding after it is removed."""
    end = next((place for place, token in enumerate(tokens) if token in stop), len(tokens) - 1)
    return tokens[: end + 1]
