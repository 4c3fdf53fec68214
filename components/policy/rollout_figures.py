"""Figures of one iteration: success rate, episode length, shares of defective replies and episodes, times."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import numpy as np

from components.environments.retry import RETRY_ADVICE
from components.errors import EnvironmentFailure
from components.policy.rollout import Rollout


def rollout_figures(
    rollouts: Sequence[Rollout], groups: Sequence[Sequence[Rollout]], *, interactions: int
) -> dict[str, float]:
    """Return the figures of an iteration by name.

    Episodes that infrastructure ended count neither as success nor as failure.

    Args:
        rollouts: all rollouts of the iteration.
        groups: rollouts that are compared with each other, without those that are not trained on.
        interactions: steps in the world during the iteration.

    Raises:
        EnvironmentFailure: infrastructure ended all episodes.
    """
    steps = [step for rollout in rollouts for step in rollout.trajectory.steps]
    zero_variance_count = sum(len({rollout.reward for rollout in group}) < 2 for group in groups)
    returns = [rollout.reward for rollout in rollouts if not rollout.broken]
    if not returns:
        raise EnvironmentFailure(
            f"All {len(rollouts)} episodes of this iteration failed for infrastructure reasons, such as "
            f"{rollouts[0].trajectory.task.id}: {rollouts[0].failure}",
            "Expected some complete episodes.",
            RETRY_ADVICE,
        )
    reply_count = max(1, sum(len(rollout.idle) for rollout in rollouts))
    return {
        "success_rate": sum(returns) / len(returns),
        "return_mean": sum(returns) / len(returns),
        "episode_length": len(steps) / len(rollouts),
        "zero_variance_groups": zero_variance_count / len(groups),
        "idle_steps": sum(sum(rollout.idle) for rollout in rollouts) / reply_count,
        "malformed_actions": sum(rollout.malformed for rollout in rollouts) / reply_count,
        "cut_replies": sum(rollout.truncated_replies for rollout in rollouts) / reply_count,
        "overlong_episodes": sum(rollout.overlong for rollout in rollouts) / len(rollouts),
        "unparsable_episodes": sum(rollout.unparsable for rollout in rollouts) / len(rollouts),
        "broken_episodes": sum(rollout.broken for rollout in rollouts) / len(rollouts),
        "generated_task_share": sum(rollout.trajectory.task.generated for rollout in rollouts)
        / len(rollouts),
        "interactions": float(interactions),
    }


def rollout_times(rollouts: Sequence[Rollout], interactions: float, seconds: float) -> dict[str, float]:
    """Return `steps_per_second`, and the two parts of a turn's time: `turn_seconds` and `row_seconds`.

    A turn in which `k` episodes step together takes about `turn_seconds + k * row_seconds`: the first part
    does not depend on how many there are. Both are fitted by least squares, neither is below 0.

    Args:
        interactions: steps in the world.
        seconds: of all rollouts.
    """
    # Episodes that step together have the same time, to the last bit.
    turns = Counter((turn, taken) for rollout in rollouts for turn, taken in enumerate(rollout.turn_seconds))
    turn, row = _line([taken for _, taken in turns], list(turns.values()))
    return {"steps_per_second": interactions / seconds, "turn_seconds": turn, "row_seconds": row}


def _line(values: Sequence[float], counts: Sequence[int]) -> tuple[float, float]:
    """Return intercept and slope of `values` over `counts`, by least squares with neither below 0."""
    if not values:
        return 0.0, 0.0
    y, x = np.array(values), np.array(counts, dtype=float)
    if len(set(counts)) > 1:
        slope, intercept = np.polyfit(x, y, 1)
        if slope >= 0 and intercept >= 0:
            return float(intercept), float(slope)
    # One of the two is 0: the line through the origin, or the mean, whichever is nearer.
    proportional = float(x @ y / (x @ x))
    if np.sum((y - proportional * x) ** 2) <= np.sum((y - y.mean()) ** 2) or len(set(counts)) == 1:
        return 0.0, proportional
    return float(y.mean()), 0.0
