"""Token ids that a model has rows for and its tokenizer does not know: never sampled, never normalised over.

Checkpoints pad their embeddings, for example to a multiple of 64, and some tokenizers have holes. Such an id
has no text. A model carries these ids as a buffer, so that the sampler, the learner and `plain_generate`
normalise over the same ids.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

BUFFER = "unknown_ids"


def set_unknown_ids(model: Any, ids: list[int]) -> None:
    """Store in `model` the ids that its tokenizer does not know; without any, `model` does not change."""
    if ids:
        model.register_buffer(BUFFER, torch.tensor(sorted(ids), dtype=torch.long), persistent=False)


def unknown_ids(model: Any) -> Tensor | None:
    """The ids int64 [U] that must not be sampled; None if the tokenizer knows all."""
    ids: Tensor | None = getattr(model, BUFFER, None)
    return ids


def without_unknown(model: Any, logits: Tensor) -> Tensor:
    """`logits` [..., V] with -inf at the unknown ids; the same tensor if there are none."""
    ids = unknown_ids(model)
    return logits if ids is None else logits.index_fill(-1, ids.to(logits.device), float("-inf"))


def entropy_of(model: Any, logprobs: Tensor) -> Tensor:
    """The entropy in nats [...] of log-probabilities [..., V] of `model`."""
    finite = logprobs if unknown_ids(model) is None else logprobs.masked_fill(logprobs == float("-inf"), 0.0)
    return -(logprobs.exp() * finite).sum(-1)


def last_known_id(model: Any, size: int) -> int:
    """The highest id below `size` that may be sampled."""
    ids = unknown_ids(model)
    barred_ids = set() if ids is None else set(ids.tolist())
    return next(index for index in range(size - 1, -1, -1) if index not in barred_ids)
