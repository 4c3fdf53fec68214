"""A player that plays nothing: it returns recorded episodes as rollouts, for offline algorithms.

Recorded episodes have no log-probabilities of the policy that acted. So an algorithm that reads them (GRPO,
PPO) cannot learn from these rollouts; DPO can.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from components.language.training.examples import Example
from components.policy.formats.demonstrations import render_demonstration
from components.policy.policy import Policy
from components.policy.rl.players.player import Begun, PlayedBatch
from components.policy.rollout import Rollout
from components.records import Task, Trajectory

NO_MORE = "the logs have no further episode of this task"
"""Failure of a rollout for which there is no recorded episode; it is not trained on."""


class LoggedPlayer:
    """Returns recorded episodes of the tasks that it is asked to play.

    Args:
        episodes: task id -> its recorded episodes.
    """

    def __init__(self, episodes: Mapping[str, Sequence[Trajectory]]) -> None:
        self._episodes = episodes

    def play(self, policy: Policy, tasks: Sequence[Task], **options: Any) -> PlayedBatch:
        """Return one rollout a task, each recorded episode at most once, in an order drawn from the seed.

        The other options of a player have no effect, and nothing is counted.
        """
        left: dict[str, list[Trajectory]] = {}
        for number, task in enumerate(dict.fromkeys(tasks)):
            left[task.id] = list(self._episodes.get(task.id, ()))
            random.Random(f"{options['seed']}/{number}").shuffle(left[task.id])
        rollouts = [
            as_rollout(policy, left[task.id].pop()) if left[task.id] else _no_rollout(task) for task in tasks
        ]
        return PlayedBatch(rollouts, 0, 0, Counter(), 0.0)

    def begin(self, policy: Policy, tasks: Sequence[Task], **options: Any) -> Begun:
        """Return the same rollouts later."""
        return lambda: self.play(policy, tasks, **options)

    def close_begun(self) -> None:
        """Do nothing: nothing is played."""


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
