"""SALT: steps that episodes share get the mean of their advantages (Li et al. 2025, arXiv 2510.20022).

    A_step = mean of A_episode over all replies of the group that made this step

    dreamgym retrain rl.algorithm.step_credit=salt

The episodes of one task form a graph: states are its nodes, steps its edges. A step that winners and losers
both made is worth little; where they part, each keeps the advantage of its episode.

Deviations from the paper:
1. Two steps are the same edge if state, action and next state are equal word for word.
2. A reply without an answer of the dream keeps the advantage of its episode: it has no next state.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from components.policy.rollout import Rollout


def merged_advantages(group: Sequence[Rollout], episode_advantages: Sequence[float]) -> list[list[float]]:
    """Return the advantage of each reply of each rollout.

    Args:
        group: rollouts of one task.
        episode_advantages: one per rollout.
    """
    advantages = [[value] * len(one.idle) for one, value in zip(group, episode_advantages, strict=True)]
    places_of_edge: dict[tuple[str, str, str], list[tuple[int, int]]] = defaultdict(list)
    for row, rollout in enumerate(group):
        for number, step in enumerate(rollout.trajectory.steps):
            places_of_edge[step.state, step.action, step.next_state].append((row, number))
    for places in places_of_edge.values():
        mean = sum(episode_advantages[row] for row, _ in places) / len(places)
        for row, number in places:
            advantages[row][number] = mean
    return advantages
