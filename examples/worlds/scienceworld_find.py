"""Tasks of ScienceWorld (package scienceworld, needs Java): find a thing of a kind, and put it into a box.

    dreamgym retrain --config examples/worlds/scienceworld_find.yaml

Texts, tasks, splits and gold actions are the package's; the agent's actions are checked by it. It lists
hundreds of possible actions, which takes longer than a step, so none are listed here.
"""

import functools
import json
import random
import re

from scienceworld import ScienceWorldEnv

from components.environments.protocol import Step
from components.environments.text_world.python_world import (
    ERROR_RATES,
    PythonWorld,
    PythonWorldAdapter,
    TaskSpec,
)
from components.records import TEST, TRAIN, VALIDATION, Task, Trajectory

NAMES = ("find-animal", "find-plant", "find-living-thing", "find-non-living-thing")
EASIER = "easy"
"""The package's own simplifications: teleport between rooms, open doors and containers, watered flowers."""
ROOMS = (
    *("kitchen", "hallway", "workshop", "greenhouse", "outside", "bathroom", "living room", "foundry"),
    *("art studio", "bedroom"),
)
THINGS = (
    "chair",
    "table",
    "picture",
    "apple",
    "axe",
    "dove egg",
    "turtle egg",
    "lemon tree",
    "couch",
    "door",
)
CUP = re.compile(r"a wood cup \(containing \w+ paint\)")
IDLE: list[ScienceWorldEnv] = []
"""Simulators that no world uses; each is a process of Java, which starts in seconds."""


class ScienceWorld(PythonWorld):
    """One episode after the other, in one simulator."""

    def __init__(self) -> None:
        self.simulator = idle_simulator()
        self.is_sound = True

    def start(self, name: str, variation: int, **_: object) -> str:
        """Return what the agent sees first."""
        self.is_sound = False
        self.simulator.load(name, variation, EASIER, generateGoldPath=True)
        state, information = self.simulator.reset()
        self.is_sound = True
        self.instruction = information["taskDesc"].removeprefix("Task Description:").strip()
        return plain(state)

    def act(self, action: str) -> Step:
        """Take one step. The task is done at the score of 100; a focus on the wrong thing ends it below 0."""
        self.is_sound = False
        state, _, is_over, information = self.simulator.step(action)
        self.is_sound = True
        return Step(plain(state), float(information["score"] >= 100), bool(is_over))

    def close(self) -> None:
        """Give the simulator to the next world; end it if its last call failed."""
        if self.is_sound:
            IDLE.append(self.simulator)
        else:
            self.simulator.close()


class FindAdapter(PythonWorldAdapter):
    """All that the pipeline knows of ScienceWorld."""

    world, splits, most_rows = ScienceWorld, (TRAIN, VALIDATION, TEST), 4
    error_rates = {**ERROR_RATES, "noisy": 0.3}
    """Logs as of a weak agent."""
    refusals = ("No known action matches that input", "not clear", "can't", "cannot", "Ambiguous request")

    def specs(self, split: str) -> list[TaskSpec]:
        """The variations of the package's split."""
        simulator = idle_simulator()
        found = []
        for name in NAMES:
            simulator.load(name, 0, EASIER)
            lists = {
                TRAIN: simulator.get_variations_train,
                VALIDATION: simulator.get_variations_dev,
                TEST: simulator.get_variations_test,
            }
            found += [
                TaskSpec(f"{name}-{number}", "", {"name": name, "variation": number}, family=name)
                for number in lists[split]()
            ]
        IDLE.append(simulator)
        return found

    def mistakes(self, task: Task, rng: random.Random) -> list[str]:
        """Actions that lead elsewhere or nowhere, and some that are impossible."""
        things = rng.sample(THINGS, 2)
        return [
            "look around",
            "inventory",
            "dance",
            f"focus on {things[0]}",
            f"pick up {things[1]}",
            f"teleport to {rng.choice(ROOMS)}",
        ]

    def expert(self, task: Task, trajectory: Trajectory) -> str:
        """The next of the package's gold actions; they are tried in order, whatever else was done between."""
        values = json.loads(task.spec)
        gold = list(gold_actions(values["name"], values["variation"]))
        for step in trajectory.steps:
            if gold and step.action == gold[0]:
                gold.pop(0)
        return gold[0] if gold else "look around"


def idle_simulator() -> ScienceWorldEnv:
    """A simulator that no world uses, started if there is none."""
    return IDLE.pop() if IDLE else ScienceWorldEnv("", envStepLimit=1000)


@functools.cache
def gold_actions(name: str, variation: int) -> tuple[str, ...]:
    """What the package itself does to solve a task."""
    world = ScienceWorld()
    world.start(name, variation)
    actions = tuple(world.simulator.get_gold_action_sequence())
    world.close()
    return actions


def plain(text: str) -> str:
    """The text in one line. The cups of the art studio, in another order at each start, are sorted."""
    line = " ".join(str(text).split())
    cups = iter(sorted(CUP.findall(line)))
    return CUP.sub(lambda _: next(cups), line)
