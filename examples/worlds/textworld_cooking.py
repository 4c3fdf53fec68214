"""The cooking games of TextWorld (package textworld) in one kitchen: read the recipe, cut a food, eat.

    dreamgym retrain --config examples/worlds/textworld_cooking.yaml

Games, answers to actions, admissible actions and best actions are the package's. The room is told in the
words of this file: the package's own description has a hundred more. A game is compiled when it is first
needed (2 s) and kept in `FOLDER`.
"""

import random
import re
import tempfile
from pathlib import Path

import textworld
from textworld.challenges import CHALLENGES
from textworld.logic import Proposition

from components.environments.protocol import Step
from components.environments.text_world.python_world import (
    ERROR_RATES,
    PythonWorld,
    PythonWorldAdapter,
    TaskSpec,
)
from components.records import TEST, TRAIN, VALIDATION, Task, Trajectory

FOLDER = Path(".dreamgym/textworld")
GAME = {
    "recipe": 1,
    "take": 1,
    "go": 1,
    "open": True,
    "cook": False,
    "cut": True,
    "drop": False,
}
"""One ingredient, on a counter or in the closed fridge of one kitchen, to be cut as the cookbook says."""
GAMES = {TRAIN: ("train", 2000), VALIDATION: ("valid", 500), TEST: ("test", 1000)}
"""Split -> the package's split, and how many seeds it has here. Held-out recipes have foods that no training
game has, or cut and cook a training food as no training game does.
"""
TOLD = textworld.EnvInfos(
    feedback=True, facts=True, objective=True, admissible_commands=True, policy_commands=True, won=True
)
FURNITURE = ("c", "s", "oven", "stove")
"""The package's kinds of things that hold others."""
OF_THE_INTERPRETER = {"quit", "q", "restart", "restore", "save", "script", "undo", "verify"}
"""Commands that are none of the world: they end, store or replace its game."""
UNKNOWN = "That's not a verb I recognise."
REFUSALS = (
    "You can't",
    "That's not",
    "You need to",
    "can't see any",
    "I don't understand",
    "did not understand",
    "already",
)


class Cooking(PythonWorld):
    """One episode after the other, each in an interpreter of its own."""

    game = None

    def start(self, split: str, seed: int, **_: object) -> str:
        """Return the description of the kitchen."""
        self.close()
        self.game = textworld.start(str(compiled(split, seed)), request_infos=TOLD)
        self.now = self.game.reset()
        self.admissible, self.instruction = self.now.admissible_commands, self.now.objective
        return described(self.now.facts)

    def act(self, action: str) -> Step:
        """Take one step; the score of a step is no reward, the won game is."""
        words = re.sub(r"[^ -~]", " ", action).strip()  # the interpreter crashes on control characters
        if words.split(" ")[0].lower() in OF_THE_INTERPRETER:
            return Step(UNKNOWN, 0.0, False)
        self.now, _, is_over = self.game.step(words)
        self.admissible = self.now.admissible_commands
        state = described(self.now.facts) if action == "look" else plain(self.now.feedback)
        return Step(state, float(self.now.won), is_over)

    def close(self) -> None:
        """End the interpreter."""
        if self.game is not None:
            self.game.close()
        self.game = None


class CookingAdapter(PythonWorldAdapter):
    """All that the pipeline knows of cooking."""

    world, refusals, splits = Cooking, REFUSALS, tuple(GAMES)
    error_rates = {**ERROR_RATES, "noisy": 0.7}
    """Logs as of a weak agent."""

    def specs(self, split: str) -> list[TaskSpec]:
        """The games of the package's split."""
        name, count = GAMES[split]
        return [TaskSpec(f"{name}-{seed}", "", {"split": name, "seed": seed}) for seed in range(count)]

    def mistakes(self, task: Task, rng: random.Random) -> list[str]:
        """Actions that are impossible or senseless in most places."""
        return ["eat meal", "prepare meal", "take knife", "open door", "dance"]

    def expert(self, task: Task, trajectory: Trajectory) -> str:
        """Read the cookbook where it lies, then do what the package calls best."""
        world = Cooking()
        world.begin(task)
        for step in trajectory.steps:
            world.act(step.action)
        has_read = any(step.action == "examine cookbook" for step in trajectory.steps)
        best = world.now.policy_commands or ["look"]
        can_read = "examine cookbook" in world.admissible
        world.close()
        return "examine cookbook" if can_read and not has_read else best[0]


def described(facts: list[Proposition]) -> str:
    """What can be seen in the kitchen: each place with what is on or in it, and what is carried."""
    places: dict[str, list[str]] = {}
    shut = {fact.names[0] for fact in facts if fact.name == "closed"}
    for fact in facts:
        if fact.name in ("on", "in", "at") and fact.names[-1] != "RECIPE":
            thing, place = fact.names
            is_furniture = fact.arguments[0].type in FURNITURE
            if is_furniture:
                places.setdefault(thing, [])
            elif place not in shut and thing != "P":
                places.setdefault("floor" if fact.name == "at" else place, []).append(thing)
    carried = places.pop("I", [])
    told = [
        f"{place}: {'closed' if place in shut else ', '.join(sorted(things)) or 'nothing'}"
        for place, things in sorted(places.items())
    ]
    return f"Kitchen. {'; '.join(told)}. You carry {', '.join(sorted(carried)) or 'nothing'}."


def plain(text: str) -> str:
    """The text before the prompt and the final score, in one line."""
    return re.sub(r"\s+", " ", text.partition("\n>")[0].partition("*** ")[0]).strip()


def compiled(split: str, seed: int) -> Path:
    """The file of a game, compiled if it is not there."""
    path = FOLDER / f"kitchen-{split}-{seed}.z8"
    if not path.is_file():
        _, make, _ = CHALLENGES["tw-cooking"]
        options = textworld.GameOptions()
        options.seeds = seed
        game = make({**GAME, "split": split, "recipe_seed": seed}, options)
        FOLDER.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=FOLDER) as folder:
            options.path = str(Path(folder) / path.name)
            textworld.generator.compile_game(game, options)
            for part in (".ni", ".json", ".z8"):  # the game's own file last: it says that all are there
                (Path(folder) / f"{path.stem}{part}").replace(path.with_suffix(part))
    return path
