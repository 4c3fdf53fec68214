"""Figures of one iteration: success rate, episode length, and shares of defective replies and episodes."""

from __future__ import annotations

from collections.abc import Sequence

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
    step_count = max(1, len(steps))
    return {
        "success_rate": sum(returns) / len(returns),
        "return_mean": sum(returns) / len(returns),
        "episode_length": len(steps) / len(rollouts),
        "zero_variance_groups": zero_variance_count / len(groups),
        "idle_steps": sum(sum(rollout.idle) for rollout in rollouts) / step_count,
        "malformed_actions": sum(rollout.malformed for rollout in rollouts) / step_count,
        "cut_replies": sum(rollout.truncated_replies for rollout in rollouts) / step_count,
        "overlong_episodes": sum(rollout.overlong for rollout in rollouts) / len(rollouts),
        "unparsable_episodes": sum(rollout.unparsable for rollout in rollouts) / len(rollouts),
        "broken_episodes": sum(rollout.broken for rollout in rollouts) / len(rollouts),
        "generated_task_share": sum(rollout.trajectory.task.generated for rollout in rollouts)
        / len(rollouts),
        "interactions": float(interactions),
    }
