"""What policy-gradient losses are made of: the clipped ratio, the distance from a reference, the mean over
episodes or tokens.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import torch
from torch import Tensor

from components.config.training_config import RLConfig
from components.policy.rl.algorithm import Written


def mean_shares(lengths: Sequence[int], loss_mean: Literal["episode", "token"]) -> list[float]:
    """The share that each token of an episode has in the mean, one value an episode of `lengths` tokens."""
    if loss_mean == "token":
        return [1 / sum(lengths)] * len(lengths)
    return [1 / (len(lengths) * length) for length in lengths]


def clipped_loss(
    new: Tensor, old: Tensor, advantages: Tensor, low: float, high: float
) -> tuple[Tensor, Tensor]:
    """-min(ratio * A, clip(ratio, 1 - low, 1 + high) * A) of each token (Schulman et al. 2017, arXiv
    1707.06347, Eq. 7), and the number of tokens whose ratio was clipped. `high` above `low` is DAPO's
    clip-higher (arXiv 2503.14476).

    Args:
        new, old, advantages: [n], of the tokens that the policy wrote; log-probabilities in nats.
    """
    ratio = torch.exp(new - old)
    bounded = ratio.clamp(1 - low, 1 + high)
    clipped = ((ratio - bounded).abs() > 0) & (ratio * advantages > bounded * advantages)
    return -torch.minimum(ratio * advantages, bounded * advantages), clipped.sum()


def surrogate(written: Written, config: RLConfig) -> tuple[Tensor, dict[str, float]]:
    """The clipped loss of each token [n], with `config.kl` times its distance from the reference, and these
    tokens' part of the figures.

    `clip_share`; `approx_kl`, the distance of the policy from the one that played; `kl`, that from the
    reference, where there is one.
    """
    each, clipped = clipped_loss(
        written.logprobs, written.old, written.targets["advantage"], config.clip, config.clip_high
    )
    drift = reference_distance(written.old, written.logprobs.detach())
    figures = {"clip_share": clipped.item() / written.count, "approx_kl": drift.sum().item() / written.count}
    if config.kl:
        distance = reference_distance(written.logprobs, written.targets["reference"])
        figures["kl"], each = distance.detach().sum().item() / written.count, each + config.kl * distance
    return each, figures


def reference_distance(new: Tensor, reference: Tensor) -> Tensor:
    """The estimate of KL(new || reference) of each token, from samples of new: exp(d) - d - 1 with d =
    reference - new.

    Unbiased on-policy and never negative (Schulman 2020, "Approximating KL divergence", k3; as in GRPO's Eq.
    4). Not weighted by the ratio where the samples are older than new (DeepSeek-V3.2's correction): the clip
    keeps the two close.
    """
    difference = reference - new
    return torch.exp(difference) - difference - 1
