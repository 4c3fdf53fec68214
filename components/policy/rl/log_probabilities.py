"""One forward pass over episodes: the log-probabilities of what the policy wrote in them, in batches of
similar length.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch

from components.language.training.examples import collate
from components.language.training.token_scores import TokenScores, token_logprobs
from components.policy.policy import Policy
from components.policy.rollout import Rollout


def pack_by_length(lengths: Sequence[int], batch_tokens: int) -> list[list[int]]:
    """Indices in groups of similar length whose padded size is at most `batch_tokens`; one that is longer
    comes alone.
    """
    order = sorted(range(len(lengths)), key=lambda i: lengths[i])
    groups: list[list[int]] = [[]]
    for index in order:
        if groups[-1] and lengths[index] * (len(groups[-1]) + 1) > batch_tokens:
            groups.append([])
        groups[-1].append(index)
    return groups


def score_tokens(
    policy: Policy,
    rollouts: Sequence[Rollout],
    *,
    temperature: float,
    with_entropy: bool = False,
    with_hidden: bool = False,
) -> TokenScores:
    """Scores of the n tokens that were written in `rollouts`, which are one batch, in their order."""
    batch = collate([rollout.example for rollout in rollouts], policy.vocabulary.marker_id("<pad>")).to(
        policy.model.device
    )
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
    """(index, scores) of each of `rollouts`, without gradients, in no order."""
    for rows in pack_by_length([len(rollout.example) for rollout in rollouts], batch_tokens):
        with torch.no_grad():
            found = score_tokens(
                policy, [rollouts[row] for row in rows], temperature=temperature, with_hidden=with_hidden
            )
        start = 0
        for row in rows:
            end = start + rollouts[row].written
            hidden = None if found.hidden is None else found.hidden[start:end]
            yield (
                row,
                TokenScores(
                    found.logprobs[start:end], found.rows[start:end], found.columns[start:end], None, hidden
                ),
            )
            start = end
