"""Builders of the RL loop's tests: worlds written by hand, small loops, and comparisons of weights.

The loop must not depend on the world, and a tiny model cannot win a household game in seconds. Known rewards
make the numbers checkable. The flows run the loop in real worlds.
"""

from __future__ import annotations

import torch
from builders import AGENT, VOCABULARY, make_episode, make_model, make_task

from components.config import BaselineRLConfig, DreamRLConfig, LoraConfig, RLConfig
from components.config.algorithm_config import ALGORITHMS as ALGORITHM_SECTIONS
from components.environments.protocol import Step
from components.policy.formats.demonstrations import render_demonstration
from components.policy.policy import Policy
from components.policy.rl.algorithms.choose import make_algorithm
from components.policy.rl.loop import (
    Loop,
)
from components.policy.rl.players.player import LocalPlayer
from components.policy.rl.task_source import EvenTasks

TASKS = [make_task(n, instruction=f"put a mug in desk {n}") for n in range(4)]


class Rewarding:
    """A world with episodes of `length` steps; `reward(row, action)` decides the last step's reward.

    Row `broken` fails at its first step.
    """

    def __init__(self, reward, length=1, broken=None):
        self.reward = reward
        self.length = length
        self.broken = broken
        self.interactions = 0

    def reset(self, tasks):
        self.steps = [0] * len(tasks)
        return [task.initial_state for task in tasks]

    def step(self, actions):
        return [None if action is None else self.answer(row, action) for row, action in enumerate(actions)]

    def ends(self, row):
        return self.steps[row] == self.length

    def answer(self, row, action):
        self.interactions += 1
        self.steps[row] += 1
        if row == self.broken:
            return Step("s", 0.0, True, {"failed": "gone"})
        done = self.ends(row)
        return Step("At desk 1: nothing.", float(done and self.reward(row, action)), done)

    def close(self):
        pass


def even_rows(row, action):
    return row % 2 == 0


def never(row, action):
    return False


def make_loop(
    world,
    *,
    tasks=None,
    policy=None,
    checkpoint=None,
    progress=None,
    max_steps=3,
    seed=0,
    demonstrations=(),
    lora=LoraConfig(),
    **settings,
):
    config = make_config(settings)
    policy = policy or Policy(make_model(), VOCABULARY)
    return Loop(
        policy,
        LocalPlayer(world),
        tasks or EvenTasks(TASKS),
        make_algorithm(config, policy, progress),
        config,
        max_steps=max_steps,
        seed=seed,
        lora=lora,
        checkpoint=checkpoint,
        demonstrations=demonstrations,
    )


def make_config(settings):
    """Return small settings with a constant rate; the algorithm's options go to its own section."""
    settings = dict(settings)
    kind = settings.pop("algorithm", "grpo")
    schedule = settings.pop("schedule", "constant")
    options = {"idle_penalty": 0.0, "step_weight": 0.0, "negative_advantage_weight": 1.0}
    options |= {"num_iterations": 1, "optimizer_steps": 2}
    fields = ALGORITHM_SECTIONS[kind].model_fields
    algorithm = {name: value for name, value in options.items() if name in fields}
    algorithm |= {name: settings.pop(name) for name in list(settings) if name in fields}
    defaults = {
        "iterations": 3,
        "tasks": 2,
        "num_generations": 4,
        "learning_rate": 1e-3,
        "max_new_tokens": 6,
        "demonstration_weight": 0.0,
    }
    section = BaselineRLConfig if schedule == "constant" else RLConfig
    if settings.get("staleness") or {"unanswered", "end_early"} & set(settings):
        section, defaults["check_every"] = DreamRLConfig, 0
    return section(**{**defaults, **settings}, algorithm={"type": kind, **algorithm})


def advantages_of(samples):
    return [sample.targets["advantage"] for sample in samples]


def weights(loop):
    return {name: weight.clone() for name, weight in loop.policy.model.state_dict().items()}


def same(first, second):
    return all(torch.equal(first[name], second[name]) for name in first)


def figures(state):
    """Return the series without timings."""
    return {name: values for name, values in state.series.items() if "second" not in name}


def make_demonstration():
    """Return a demonstration as an example for cloning."""
    episode = make_episode(TASKS[0], ("go to desk 1", "At desk 1: nothing. Holding nothing."))
    return render_demonstration(AGENT, episode, thoughts=["a thought"])


def policy_with(compute):
    return Policy(make_model(hidden=32), VOCABULARY, compute=compute)


LORA = LoraConfig(rank=2, targets="all-linear")
