"""One row to continue, and how vLLM is asked for it: every sampling parameter is set.

No default of vLLM or of a checkpoint's generation_config.json has an effect.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from components.language.sampled_ids import unknown_ids

BARRED = -100.0
"""Added to the logit of an id that must not be sampled: vLLM's lowest. Its probability is below 1e-40."""


@dataclass(frozen=True)
class Request:
    """The tokens of a row, its random seed, and how many tokens to generate at most.

    Requests of equal `affinity` have a prefix in common.
    """

    tokens: list[int]
    seed: int
    limit: int
    affinity: int = 0


def barred_ids(model: Any) -> dict[int, float]:
    """What is added to the logits of the ids that the tokenizer of `model` does not know."""
    ids = unknown_ids(model)
    return {} if ids is None else dict.fromkeys(ids.tolist(), BARRED)


def sampling_parameters(
    request: Request, *, stop: set[int], temperature: float, barred: Mapping[int, float]
) -> dict[str, Any]:
    """The parameters of a request by their names, which vLLM's `SamplingParams` and its server share.

    Args:
        stop: token ids that end a row.
        temperature: of the softmax; 0 is greedy.
        barred: what is added to the logits of some ids.
    """
    return {
        "max_tokens": request.limit,
        "temperature": temperature,
        "seed": request.seed,
        "top_p": 1.0,
        "top_k": 0,
        "min_p": 0.0,
        "presence_penalty": 0.0,
        "frequency_penalty": 0.0,
        "repetition_penalty": 1.0,
        "logit_bias": dict(barred) or None,
        "stop_token_ids": sorted(stop),
        "ignore_eos": True,
        "logprobs": 0,
    }
