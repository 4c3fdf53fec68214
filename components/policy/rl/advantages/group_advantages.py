"""GRPO's advantages of a group: how much better each return is than the mean (arXiv 2402.03300)."""

from __future__ import annotations

from collections.abc import Sequence

EPSILON = 1e-6


def group_advantages(returns: Sequence[float], *, scale: bool) -> list[float]:
    """Return the advantages of one group from its returns; all zero if the returns are equal.

    Args:
        scale: divide by the population's standard deviation.
    """
    if min(returns) == max(returns):  # their mean differs from them by rounding
        return [0.0] * len(returns)
    mean = sum(returns) / len(returns)
    centred = [value - mean for value in returns]
    if not scale:
        return centred
    deviation = (sum(value * value for value in centred) / len(returns)) ** 0.5
    return [value / (deviation + EPSILON) for value in centred]


def weighted(advantage: float, negative_weight: float) -> float:
    """Return the advantage, multiplied by `negative_weight` if it is negative."""
    return advantage if advantage > 0 else negative_weight * advantage
