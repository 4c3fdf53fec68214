"""GiGPO: replies to the same state are compared with each other (Feng et al. 2025, arXiv 2505.10978).

    A_step = discount^(steps to the end) * return - mean of the same over all replies to this state

    dreamgym retrain rl.algorithm.step_weight=2     # its weight beside the episode's advantage

Deviation from the paper: its step advantages have the weight 1 beside those of the episode; our default is 2.

No deviation: the values are not divided by their standard deviation (see `step_advantages`). The authors'
code has both as options.
"""

from __future__ import annotations

from collections.abc import Sequence

from components.policy.rl.advantages.group_advantages import group_advantages
from components.policy.rollout import Rollout


def step_advantages(
    group: Sequence[Rollout], returns: Sequence[float], *, discount: float
) -> list[list[float]]:
    """Return GiGPO's advantage of each reply of each rollout (Feng et al. 2025, arXiv 2505.10978, Eq. 6-8).

    Within one task's group, all replies to the same state, word for word, form a step group. Their discounted
    returns are compared: discount^(steps to the end) * return. A state that occurs once gives 0.0. The values
    are not divided by the standard deviation. Otherwise two successes, one a step longer, would differ as
    much as a success and a failure.

    Args:
        group: rollouts of one task.
        returns: one per rollout.
    """
    lengths = [len(rollout.idle) for rollout in group]
    discounted = [
        [value * discount ** (length - 1 - step) for step in range(length)]
        for value, length in zip(returns, lengths, strict=True)
    ]
    places_of_state: dict[str, list[tuple[int, int]]] = {}
    for row, rollout in enumerate(group):
        for step in range(len(rollout.idle)):
            places_of_state.setdefault(rollout.trajectory.states[step], []).append((row, step))
    advantages = [[0.0] * length for length in lengths]
    for places in places_of_state.values():
        values = group_advantages([discounted[row][step] for row, step in places], scale=False)
        for (row, step), value in zip(places, values, strict=True):
            advantages[row][step] = value
    return advantages
