"""Advantages normalised within each family of tasks (AgentRL, arXiv 2510.04206).

    A' = (A - mean A) / std A          over all tokens of one family's groups with a learning signal

    dreamgym retrain rl.algorithm.normalise_families=true

A family whose episodes are long, or whose groups often differ, would otherwise outweigh the others.

The paper normalises within each environment of a training in several. So does this with several worlds
(`environment.name=mixed`), whose families are the worlds; in a single world a family of its tasks takes that
place, and generated tasks are one more.

Deviations from the paper:
1. A is the credit of a reply before our penalty of idle replies and the weight of negative advantages, so
   that neither is scaled up in a family with little variance.
2. A group whose replies all have an advantage of zero is neither counted nor changed. The paper's formula has
   all tokens of a task. Failures are longer than successes, so its mean is negative, and episodes of groups
   without variance would get positive credit.
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

    A reply counts as often as it has tokens. Groups of zeros are returned as they are, and so is a family
    whose counted tokens all have one advantage: without a deviation there is nothing to compare.
    """
    counted: dict[str, list[tuple[float, int]]] = defaultdict(list)
    for group, rows in zip(groups, credit, strict=True):
        if _has_signal(rows):
            for rollout, row in zip(group, rows, strict=True):
                counted[_family(group)] += zip(row, rollout.reply_lengths, strict=True)
    scales = {family: _mean_and_deviation(values) for family, values in counted.items()}
    normalised: list[Credit] = []
    for group, rows in zip(groups, credit, strict=True):
        mean, deviation = scales.get(_family(group), (0.0, 0.0))
        is_unchanged = deviation <= EPSILON or not _has_signal(rows)
        normalised.append(
            rows if is_unchanged else [[(value - mean) / deviation for value in row] for row in rows]
        )
    return normalised


def _has_signal(rows: Credit) -> bool:
    return any(map(any, rows))


def _mean_and_deviation(values: Sequence[tuple[float, int]]) -> tuple[float, float]:
    total = sum(count for _, count in values)
    if not total:
        return 0.0, 0.0
    mean = sum(value * count for value, count in values) / total
    return mean, (sum(count * (value - mean) ** 2 for value, count in values) / total) ** 0.5


def _family(group: Sequence[Rollout]) -> str:
    return group[0].trajectory.task.family
