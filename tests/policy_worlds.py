"""A hand-written world for players of rollouts, and a tiny policy: a player must not depend on a dream."""

from __future__ import annotations

import random
import time
from pathlib import Path

from builders import VOCABULARY, make_model

from components.environments.protocol import Step
from components.policy.policy import Policy


class CountingDream:
    """A world whose states tell its number of transitions.

    A task with instruction `fail` raises, `await FILE` begins when the file is there, `make FILE` makes it.
    """

    def __init__(self):
        self.seed = 0
        self.interactions = 0
        self.tokens = 0
        self.transition_count = 0

    def reset(self, tasks):
        if any(task.instruction == "fail" for task in tasks):
            raise RuntimeError("the world is gone")
        for task in tasks:
            word, _, file = task.instruction.partition(" ")
            if word == "make":
                Path(file).touch()
            while word == "await" and not Path(file).exists():
                time.sleep(0.01)
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
        if not all(transitions):
            raise RuntimeError("no transition")
        self.transition_count += len(transitions)

    def close(self):
        pass


class SleepingDream(CountingDream):
    """A world whose episodes take a time that the seed of the batch's share decides, and no processor."""

    def reset(self, tasks):
        time.sleep(share_seconds(self.seed))
        return super().reset(tasks)


def share_seconds(seed):
    """Return the seconds that a `SleepingDream` takes for a share: 0.3 in the median, some far longer."""
    return 0.3 * random.Random(f"share {seed}").lognormvariate(0.0, 0.8)


def policy():
    """Return an untrained policy."""
    return Policy(make_model(), VOCABULARY, max_new_tokens=4)


def texts(rollouts):
    """Return the episode id, action and next state of each step."""
    return [
        [(step.episode_id, step.action, step.next_state) for step in rollout.trajectory.steps]
        for rollout in rollouts
    ]
