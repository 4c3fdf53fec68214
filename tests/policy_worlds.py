"""A hand-written world for players of rollouts, and a tiny policy: a player must not depend on a dream."""

from __future__ import annotations

from builders import VOCABULARY, make_model

from components.environments.protocol import Step
from components.policy.policy import Policy


class CountingDream:
    """A world whose states tell its number of transitions; a task with instruction `fail` raises."""

    def __init__(self):
        self.seed = 0
        self.interactions = 0
        self.tokens = 0
        self.transition_count = 0

    def reset(self, tasks):
        if any(task.instruction == "fail" for task in tasks):
            raise RuntimeError("the world is gone")
        return [task.initial_state for task in tasks]

    def step(self, actions):
        self.interactions += sum(action is not None for action in actions)
        self.tokens += 10
        return [
            None
            if action is None
            else Step(f"I know {self.transition_count} things, seed {self.seed}.", 0.0, False)
            for action in actions
        ]

    def remember(self, transitions):
        self.transition_count += len(transitions)

    def close(self):
        pass


def policy():
    """Return an untrained policy."""
    return Policy(make_model(), VOCABULARY, max_new_tokens=4)


def texts(rollouts):
    """Return the episode id, action and next state of each step."""
    return [
        [(step.episode_id, step.action, step.next_state) for step in rollout.trajectory.steps]
        for rollout in rollouts
    ]
