"""Advantages normalised within each family of tasks (AgentRL, arXiv 2510.04206).

    A' = (A - mean A) / std A          over all tokens of the samples of one family

    dreamgym retrain rl.algorithm.normalise_families=true

A family whose episodes are long, or whose groups often differ, would otherwise outweigh the others.

The paper normalises within each environment of a training in several. So does this with several worlds
(`environment.name=mixed`), whose families are the worlds; in a single world a family of its tasks takes that
place.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace

from components.policy.rl.training_sample import TrainingSample

EPSILON = 1e-6


def normalise_families(samples: Sequence[TrainingSample]) -> list[TrainingSample]:
    """Return the samples with the target `advantage` normalised within each task family.

    A family whose tokens all have one advantage keeps it: without a deviation there is nothing to compare.
    """
    values: dict[str, list[float]] = defaultdict(list)
    for sample in samples:
        values[_family(sample)] += sample.targets["advantage"]
    changed = []
    for sample in samples:
        of_family = values[_family(sample)]
        mean = sum(of_family) / len(of_family)
        deviation = (sum((value - mean) ** 2 for value in of_family) / len(of_family)) ** 0.5
        if deviation > EPSILON:
            own = [(value - mean) / deviation for value in sample.targets["advantage"]]
            sample = replace(sample, targets=sample.targets | {"advantage": own})
        changed.append(sample)
    return changed


def _family(sample: TrainingSample) -> str:
    return sample.rollouts[0].trajectory.task.family
