"""A player that plays nothing: it returns recorded episodes as rollouts, for offline algorithms.

Recorded episodes have no log-probabilities of the policy that acted. So an algorithm that reads them (GRPO,
PPO) cannot learn from these rollouts; DPO can.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence

from components.language.training.examples import Example
from components.policy.formats.demonstrations import render_demonstration
from components.policy.policy import Policy
from components.policy.rollout import Rollout, Stamp
from components.records import Task, Trajectory

NO_MORE = "the logs have no further episode of this task"
"""Failure of a rollout for which there is no recorded episode; it is not trained on."""


class LoggedPlayer:
    """Returns recorded episodes of the tasks that it is asked to play.

    Args:
        episodes: task id -> its recorded episodes.
    """

    interactions = 0
    """Nothing is played."""

    def __init__(self, episodes: Mapping[str, Sequence[Trajectory]]) -> None:
        self._episodes = episodes

    def play(
        self,
        policy: Policy,
        tasks: Sequence[Task],
        *,
        max_steps: int,
        temperature: float,
        seed: int,
        stamp: Stamp = Stamp(),
    ) -> list[Rollout]:
        """Return one rollout a task, each recorded episode at most once, in an order drawn from `seed`.

        The other arguments of a player have no effect.
        """
        left: dict[str, list[Trajectory]] = {}
        for number, task in enumerate(dict.fromkeys(tasks)):
            left[task.id] = list(self._episodes.get(task.id, ()))
            random.Random(f"{seed}/{number}").shuffle(left[task.id])
        return [
            as_rollout(policy, left[task.id].pop()) if left[task.id] else _no_rollout(task) for task in tasks
        ]


def as_rollout(policy: Policy, episode: Trajectory) -> Rollout:
    """Return a recorded episode as the policy would have written it; its log-probabilities are all 0."""
    example = render_demonstration(policy.text, episode)
    states = episode.states
    return Rollout(
        episode,
        example,
        [0.0] * sum(segment.predicted for segment in example.segments),
        [step.thought for step in episode.steps],
        [before == after for before, after in zip(states[:-1], states[1:], strict=True)],
    )


def _no_rollout(task: Task) -> Rollout:
    return Rollout(Trajectory(task), Example([]), failure=NO_MORE)
