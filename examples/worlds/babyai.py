"""BabyAI (package minigrid) as a world of text: levels with one room, what the agent sees in words.

    dreamgym retrain --config examples/worlds/babyai.yaml

The words are this file's; rules, tasks and the expert (`BabyAIBot`) are the package's. Objects are told as in
BabyAI-Text (arXiv 2302.02662): where they are from the agent's own place and direction.
"""

import io
import random
from contextlib import redirect_stdout

import gymnasium
import minigrid  # noqa: F401  it registers the levels
from minigrid.core.constants import IDX_TO_COLOR, IDX_TO_OBJECT
from minigrid.utils.baby_ai_bot import BabyAIBot, DisappearedBoxError

from components.environments.protocol import Step
from components.environments.text_world.python_world import (
    ERROR_RATES,
    PythonWorld,
    PythonWorldAdapter,
    TaskSpec,
)
from components.records import TEST, TRAIN, VALIDATION, Task, Trajectory

LEVELS = ("GoToLocal", "PickupLoc", "OpenDoorLoc", "PutNextLocalS5N3")
ACTIONS = ("turn left", "turn right", "go forward", "pick up", "drop", "toggle")
STATES = ("open", "closed", "locked")
SEEDS = 4000
"""Seeds of a level: even ones are for training, the others for validation and test in turn."""


class BabyAI(PythonWorld):
    """One episode after the other."""

    admissible = ACTIONS

    def start(self, level: str, seed: int, **_: object) -> str:
        """Return what the agent sees first."""
        self.game = gymnasium.make(f"BabyAI-{level}-v0", disable_env_checker=True).unwrapped
        with redirect_stdout(io.StringIO()):  # the levels print the draws that they reject
            observation, _ = self.game.reset(seed=seed)
        self.view, self.instruction = describe(observation["image"]), observation["mission"]
        return self.view

    def act(self, action: str) -> Step:
        """Take one step; one that changes nothing is answered with "Nothing happens."."""
        if action not in ACTIONS:
            return Step(f"Nothing happens. {self.view}", 0.0, False)
        observation, reward, is_over, is_cut, _ = self.game.step(ACTIONS.index(action))
        before, self.view = self.view, describe(observation["image"])
        state = self.view if self.view != before or is_over else f"Nothing happens. {self.view}"
        return Step(state, float(reward > 0), is_over or is_cut)


class BabyAIAdapter(PythonWorldAdapter):
    """All that the pipeline knows of BabyAI."""

    world, refusals, splits = BabyAI, ("Nothing happens",), (TRAIN, VALIDATION, TEST)
    error_rates = {**ERROR_RATES, "noisy": 0.7}
    """Logs as of a weak agent: it wins about a third of its episodes."""

    def specs(self, split: str) -> list[TaskSpec]:
        """The levels with the seeds of the split. The mission of a seed is its instruction."""
        first, every = {TRAIN: (0, 2), VALIDATION: (1, 4), TEST: (3, 4)}[split]
        return [
            TaskSpec(f"{level}-{seed}", "", {"level": level, "seed": seed}, family=level)
            for seed in range(first, SEEDS, every)
            for level in LEVELS
        ]

    def mistakes(self, task: Task, rng: random.Random) -> list[str]:
        """Actions that change nothing in most places."""
        return ["pick up", "drop", "toggle", "jump"]

    def expert(self, task: Task, trajectory: Trajectory) -> str:
        """What the package's own bot does after these actions."""
        world = BabyAI()
        world.begin(task)
        bot = BabyAIBot(world.game)
        action = bot.replan()
        try:
            for step in trajectory.steps:
                if step.action in ACTIONS:
                    world.act(step.action)
                    action = bot.replan(ACTIONS.index(step.action))
        except DisappearedBoxError:  # it gives up where a box was opened
            return "go forward"
        return ACTIONS[action]


def describe(image: object) -> str:
    """What an observation `image`, int [7, 7, 3] (column, row, kind with colour and state), shows, in words.

    The agent stands in column 3 of row 6, where the image has what it carries, and looks towards row 0.
    """
    things, wall = [], ""
    for row in range(6, -1, -1):
        for column in sorted(range(7), key=lambda place: abs(place - 3)):
            kind, colour, state = (int(value) for value in image[column, row])
            name, ahead, aside = IDX_TO_OBJECT[kind], 6 - row, column - 3
            if name == "wall" and aside == 0:
                wall = wall or f" Wall {ahead} ahead."
            elif name in ("key", "ball", "box", "door") and (ahead or aside):
                door_state = f"{STATES[state]} " if name == "door" else ""
                place = f" {ahead} ahead" * bool(ahead) + _aside(aside)
                things.append(f"{door_state}{IDX_TO_COLOR[colour]} {name}{place}")
    kind, colour, _ = (int(value) for value in image[3, 6])
    is_held = IDX_TO_OBJECT[kind] in ("key", "ball", "box")
    held = f"{IDX_TO_COLOR[colour]} {IDX_TO_OBJECT[kind]}" if is_held else "nothing"
    return f"You see {', '.join(things) or 'nothing'}.{wall} You carry {held}."


def _aside(steps: int) -> str:
    """How far to the side, in words."""
    return f" {abs(steps)} {'left' if steps < 0 else 'right'}" if steps else ""
