"""Advantages normalised within each family of tasks (AgentRL, arXiv 2510.04206).

    A' = (A - mean A) / std A          over all tokens of the episodes of one family

    dreamgym retrain rl.algorithm.normalise_families=true

A family whose episodes are long, or whose groups often differ, would otherwise outweigh the others.

The paper normalises within each environment of a training in several. So does this with several worlds
(`environment.name=mixed`), whose families are the worlds; in a single world a family of its tasks takes that
place, and generated tasks are one more.

Deviation from the paper: A is the credit of a reply before our penalty of idle replies and the weight of
negative advantages, so that neither is scaled up in a family with little variance.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from components.policy.rollout import Rollout

EPSILON = 1e-6
Credit = Sequence[Sequence[float]]
"""Advantage of each reply of each rollout of a group."""


def normalise_families(groups: Sequence[Sequence[Rollout]], credit: Sequence[Credit]) -> list[Credit]:
    """Return the credit of each group's replies, normalised within each task family.

    A reply counts as often as it has tokens. A family whose tokens all have one advantage keeps it: without a
    deviation there is nothing to compare.
    """
    counted: dict[str, list[tuple[float, int]]] = defaultdict(list)
    for group, rows in zip(groups, credit, strict=True):
        for rollout, row in zip(group, rows, strict=True):
            counted[_family(group)] += zip(row, rollout.reply_lengths, strict=True)
    scales = {family: _mean_and_deviation(values) for family, values in counted.items()}
    normalised: list[Credit] = []
    for group, rows in zip(groups, credit, strict=True):
        mean, deviation = scales[_family(group)]
        is_alike = deviation <= EPSILON
        normalised.append(
            rows if is_alike else [[(value - mean) / deviation for value in row] for row in rows]
        )
    return normalised


def _mean_and_deviation(values: Sequence[tuple[float, int]]) -> tuple[float, float]:
    total = sum(count for _, count in values)
    if not total:
        return 0.0, 0.0
    mean = sum(value * count for value, count in values) / total
    return mean, (sum(count * (value - mean) ** 2 for value, count in values) / total) ** 0.5


def _family(group: Sequence[Rollout]) -> str:
    return group[0].trajectory.task.family
