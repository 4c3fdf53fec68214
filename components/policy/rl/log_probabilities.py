"""Log-probabilities of the tokens that a policy wrote in rollouts, computed in batches of similar length."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import accumulate

import torch

from components.language.freed_memory import return_if_grown
from components.language.training.examples import Batch, collate
from components.language.training.token_scores import TokenScores, token_logprobs
from components.policy.policy import Policy
from components.policy.rollout import Rollout


def pack_by_length(lengths: Sequence[int], batch_tokens: int) -> list[list[int]]:
    """Return indices in groups of similar length whose padded size is at most `batch_tokens`.

    An entry that is longer than `batch_tokens` forms a separate group.
    """
    order = sorted(range(len(lengths)), key=lambda i: lengths[i])
    groups: list[list[int]] = []
    for index in order:
        if not groups or lengths[index] * (len(groups[-1]) + 1) > batch_tokens:
            groups.append([])
        groups[-1].append(index)
    return groups


def rollout_batch(policy: Policy, rollouts: Sequence[Rollout], device: torch.device) -> Batch:
    """Return the tokens of rollouts as one batch on `device`."""
    return collate([rollout.example for rollout in rollouts], policy.vocabulary.pad_id).to(device)


def score_tokens(
    policy: Policy,
    rollouts: Sequence[Rollout],
    *,
    temperature: float,
    with_entropy: bool = False,
    with_hidden: bool = False,
) -> TokenScores:
    """Return scores of the n tokens that the policy wrote in `rollouts`, in their order.

    All rollouts go through one forward pass, with gradients.

    Args:
        temperature: of sampling; log-probabilities and entropies are those at this temperature.
        with_entropy: also return the entropy at each token.
        with_hidden: also return the hidden states that the tokens were predicted from.
    """
    batch = rollout_batch(policy, rollouts, policy.model.device)
    with policy.compute.forward():
        return token_logprobs(
            policy.model, batch, temperature=temperature, with_entropy=with_entropy, with_hidden=with_hidden
        )


def score_without_gradients(
    policy: Policy,
    rollouts: Sequence[Rollout],
    *,
    temperature: float,
    batch_tokens: int,
    with_hidden: bool = False,
) -> Iterator[tuple[int, TokenScores]]:
    """Yield (index, scores) of each rollout, without gradients, in no particular order.

    Args:
        batch_tokens: maximum padded size of a forward pass, in tokens.
    """
    if policy.score_elsewhere is not None:
        yield from policy.score_elsewhere(
            rollouts, temperature=temperature, batch_tokens=batch_tokens, with_hidden=with_hidden
        )
        return
    for rows in pack_by_length([len(rollout.example) for rollout in rollouts], batch_tokens):
        own_rollouts = [rollouts[row] for row in rows]
        with torch.no_grad():
            scores = score_tokens(policy, own_rollouts, temperature=temperature, with_hidden=with_hidden)
        return_if_grown()
        yield from zip(rows, split_scores(scores, own_rollouts), strict=True)


def split_scores(scores: TokenScores, rollouts: Sequence[Rollout]) -> list[TokenScores]:
    """Return the scores of each rollout out of those of `rollouts` together, without entropies."""
    ends = list(accumulate(rollout.token_count for rollout in rollouts))
    return [
        TokenScores(
            scores.logprobs[start:end],
            scores.rows[start:end],
            scores.columns[start:end],
            None,
            None if scores.hidden is None else scores.hidden[start:end],
        )
        for start, end in zip([0, *ends], ends, strict=False)
    ]
