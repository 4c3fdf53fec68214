"""Log-probabilities, entropies and hidden states of the predicted tokens of a batch.

Logits are computed only where a token is predicted. With whole episodes packed as one sequence that is a
small part of all positions. Elsewhere, a large vocabulary would cost more than the rest of the model.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from peft import PeftModel
from torch import Tensor
from torch.nn.functional import embedding
from torch.utils.checkpoint import checkpoint
from transformers import PreTrainedModel

from components.errors import ConfigError
from components.language.adapters import without_adapters
from components.language.kernels.last_block import can_narrow, hidden_at
from components.language.kernels.tree_attention import TREE
from components.language.output_head import has_plain_head, head_rows
from components.language.sampled_ids import entropy_of, without_unknown
from components.language.training.examples import Batch
from components.language.transformers_setup import attention_of

MAX_LOGITS = 1 << 25
"""Most logits that are kept for the backward pass; of more, each chunk is computed twice instead."""


@dataclass
class TokenScores:
    """Scores of the n predicted tokens of a batch, row by row, in the order of the sequence.

    `logprobs` fp32 [n], in nats. `rows` and `columns` int64 [n]: the place of each token in the batch.
    `entropies` fp32 [n] in nats, or None. `hidden` [n, H]: the last hidden states that predict the tokens, or
    None.
    """

    logprobs: Tensor
    rows: Tensor
    columns: Tensor
    entropies: Tensor | None = None
    hidden: Tensor | None = None


def token_logprobs(
    model: PreTrainedModel | PeftModel,
    batch: Batch,
    *,
    temperature: float = 1.0,
    with_entropy: bool = False,
    with_hidden: bool = False,
) -> TokenScores:
    """Log-probability of each predicted token of `batch`, with gradients.

    Args:
        model: scores the tokens.
        batch: the tokens, on the device of `model`.
        temperature: of the softmax.
        with_entropy: also give the entropy at each token, without a gradient.
        with_hidden: also give the last hidden states.

    Raises:
        ConfigError: `with_hidden`, and the architecture does not give its hidden states.
    """
    inner = without_adapters(model)
    rows, columns = batch.rows, batch.columns
    states, is_logits = _outputs_at(inner, batch, rows, batch.predecessor[rows, columns])
    if with_hidden and is_logits:
        raise ConfigError(
            f"The hidden states of {inner.config.model_type} cannot be read.",
            next_step="Take algorithm: grpo, or a Llama or Qwen backbone.",
        )
    head = (lambda logits: logits) if is_logits else inner.get_output_embeddings()

    def score(some_states: Tensor, ids: Tensor) -> tuple[Tensor, Tensor]:
        """The log-probability of each id, and the entropies (0 if they are not asked for)."""
        logits = without_unknown(inner, head(some_states).float())
        distribution = torch.log_softmax(logits if temperature == 1 else logits / temperature, dim=-1)
        with torch.no_grad():  # entropy is only logged: its graph over a large vocabulary takes gigabytes
            entropies = entropy_of(inner, distribution) if with_entropy else torch.zeros(())
        return distribution.gather(1, ids[:, None])[:, 0], entropies

    ids = batch.input_ids[rows, columns]
    chunk = max(1, MAX_LOGITS // head_rows(inner))
    if is_logits or len(ids) <= chunk:
        logprobs, entropies = score(states, ids)
    else:
        parts = [
            checkpoint(score, some_states, some_ids, use_reentrant=False)
            for some_states, some_ids in zip(states.split(chunk), ids.split(chunk), strict=True)
        ]
        logprobs = torch.cat([part for part, _ in parts])
        entropies = torch.cat([part for _, part in parts]) if with_entropy else torch.zeros(())
    hidden = states if with_hidden else None
    return TokenScores(logprobs, rows, columns, entropies if with_entropy else None, hidden)


def _outputs_at(model: PreTrainedModel, batch: Batch, rows: Tensor, columns: Tensor) -> tuple[Tensor, bool]:
    """What `model` computes at n places of the batch.

    Returns:
        With a plain head the hidden states [n, H] and False, else the logits [n, V] and True.
    """
    inputs: dict[str, Any] = {"input_ids": batch.input_ids, "use_cache": False}
    if batch.tree is not None:
        # Only with branches: transformers takes explicit positions for a sign of packed sequences.
        inputs["position_ids"] = batch.position_ids
    if not has_plain_head(model):
        return _states_at(model(**inputs, attention_mask=batch.attention).logits, rows, columns), True
    if batch.tree is None and can_narrow(model):
        return hidden_at(model, batch.input_ids, rows, columns, batch.widest), False
    if batch.tree is None:
        hidden = model.get_decoder()(**inputs).last_hidden_state
    else:
        with attention_of(model, TREE):
            hidden = model.get_decoder()(**inputs, tree=batch.tree).last_hidden_state
    return _states_at(hidden, rows, columns), False


def _states_at(states: Tensor, rows: Tensor, columns: Tensor) -> Tensor:
    """The states [n, d] at n places of `states` [B, L, d].

    A place may occur many times: all branches of a trunk are predicted at one place. An embedding lookup adds
    the gradients of a place in a fixed order. Indexing adds them in the order in which threads arrive, so
    that the weights would differ in their last bits from run to run.
    """
    return embedding(rows * states.shape[1] + columns, states.flatten(0, 1))
