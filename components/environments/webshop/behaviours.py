"""Behaviour policies for offline data: an expert that shops with care, a noisy one, near misses, and random.

None of them sees the shop's hidden side. They act on what the trajectory has said (`knowledge.py`), on the
instruction, and on what can be clicked.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence

from components.environments.protocol import Behaviour
from components.environments.webshop.goals import read_requirements
from components.environments.webshop.knowledge import Knowledge, collect_knowledge
from components.environments.webshop.shoppers.expert import ExpertShopper
from components.environments.webshop.shoppers.near_miss import NearMissShopper
from components.environments.webshop.shoppers.random_actions import NoisyShopper, RandomShopper
from components.environments.webshop.thoughts import think
from components.errors import EnvironmentFailure
from components.records import Task, Trajectory

NAMES = ("expert", "noisy", "near_miss", "random")


def make_behaviour(name: str, task: Task, seed: int) -> Behaviour:
    """Return a new behaviour policy for one episode of `task`.

    The policy maps (trajectory, admissible actions) to (thought, action). A step that the expert decided has
    the expert's thought; a mistake or a random action has none.

    Raises:
        EnvironmentFailure: the name is unknown.
    """
    if name not in NAMES:
        raise EnvironmentFailure(
            f"There is no behaviour policy {name!r}.", f"Expected one of {', '.join(NAMES)}."
        )
    requirements = read_requirements(task.instruction)
    expert = ExpertShopper(requirements, random.Random(f"{name}/{task.id}/{seed}"))
    act = _choose_policy(name, expert)

    def behave(trajectory: Trajectory, admissible: Sequence[str]) -> tuple[str, str]:
        knowledge = collect_knowledge(trajectory)
        expert.decided = False
        action = act(knowledge, list(admissible))
        return think(requirements, knowledge) if expert.decided else "", action

    return behave


def _choose_policy(name: str, expert: ExpertShopper) -> Callable[[Knowledge, list[str]], str]:
    if name == "noisy":
        return NoisyShopper(expert).act
    if name == "near_miss":
        return NearMissShopper(expert).act
    return RandomShopper(expert).act if name == "random" else expert.act
