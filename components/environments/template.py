"""A whole environment to copy: a thing lies in one of several boxes and belongs on the table.

docs/guides/add-a-world.md explains each part. Test it:

    dreamgym check-environment environment.name=own
        environment.own.adapter=components.environments.template:TemplateAdapter
"""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from dataclasses import replace

from components.config.worlds.environment_config import EnvironmentConfig
from components.environments.protocol import Behaviour, RealEnvironment, Step
from components.environments.text_world.plain_adapter import PlainAdapter, build_task, sample_tasks
from components.environments.validation_split import require_split
from components.environments.vectorized import RowsEnvironment
from components.errors import EnvironmentFailure
from components.records import TEST, TRAIN, VALIDATION, Task, Trajectory

THINGS: tuple[str, ...] = ("coin", "key", "ring", "pen", "cup", "map", "egg", "rope", "lamp", "ball")
THINGS += ("book", "bell", "comb", "fork", "glove", "nail", "shoe", "spoon", "stone", "watch")
ERROR_RATES = {"expert": 0.0, "noisy": 0.2, "near_miss": 0.5, "random": 1.0}
"""Behaviour -> the share of steps in which it leaves the expert's way."""


class BoxWorld:
    """One episode. What it raises counts as a failure of the world, never as the agent's."""

    def begin(self, task: Task) -> str:
        """Return the initial state, the same at every start of the task."""
        spec = json.loads(task.spec)
        self.thing = spec["thing"]
        self.place = spec["place"]
        self.boxes = spec["boxes"]
        self.opened = 0
        self.is_held = False
        return self._state(f"Boxes: {', '.join(f'box {n}' for n in range(1, self.boxes + 1))}")

    def act(self, action: str) -> Step:
        """Take one step. An action that is impossible or senseless is answered like any other."""
        if action not in self.admissible:
            return Step(self._state("Nothing happens"), 0.0, False)
        if action.startswith("open"):
            self.opened = int(action.split()[-1])
            content = self.thing if self._is_here() else "empty"
            return Step(self._state(f"Box {self.opened}: {content}"), 0.0, False)
        is_won = self.is_held
        self.is_held = not self.is_held
        text = f"{'On the table' if is_won else 'Took'}: {self.thing}"
        return Step(self._state(text), float(is_won), is_won)

    def close(self) -> None:
        """Nothing to free."""

    def _is_here(self) -> bool:
        return self.opened == self.place and not self.is_held

    def _state(self, text: str) -> str:
        take = [f"take {self.thing}"] * self._is_here()
        put = [f"put {self.thing} on table"] * self.is_held
        self.admissible = (*(f"open box {n}" for n in range(1, self.boxes + 1)), *take, *put)
        return f"{text}. Holding: {self.thing if self.is_held else 'nothing'}."


class TemplateAdapter(PlainAdapter):
    """All that the pipeline knows of boxes. `PlainAdapter` answers the rest, as for any world."""

    name = "own"
    refusals = ("Nothing happens",)
    splits = (TRAIN, VALIDATION, TEST)

    def __init__(self, config: EnvironmentConfig) -> None:
        self.seed = config.seed

    def tasks(self, split: str, count: int, seed: int) -> list[Task]:
        """Return `count` different tasks.

        Rooms with an even number of boxes are for training. In the others the thing lies in an odd box for
        tests and in an even one for validation.
        """
        require_split(split, self.splits)
        sizes = range(4 if split == TRAIN else 5, 14, 2)
        first, step = {TRAIN: (1, 1), VALIDATION: (2, 2), TEST: (1, 2)}[split]
        rooms = [
            (thing, boxes, place)
            for thing in THINGS
            for boxes in sizes
            for place in range(first, boxes + 1, step)
        ]
        rng = random.Random(f"{split}/{self.seed}/{seed}")
        return [self._task(split, *room) for room in sample_tasks(rng, rooms, count, split)]

    def _task(self, split: str, thing: str, boxes: int, place: int) -> Task:
        name = f"{thing}-{boxes}-{place}"
        instruction = f"put the {thing} on the table"
        task = build_task(self.name, name, split, instruction, "", thing=thing, boxes=boxes, place=place)
        return replace(task, initial_state=BoxWorld().begin(task))

    def open(
        self, budget: int | None = None, *, workers: int | None = None, stock: bool = False
    ) -> RealEnvironment:
        """Open an environment with a world for each row."""
        return RowsEnvironment(BoxWorld, budget)

    def behaviour(self, name: str, task: Task, seed: int) -> Behaviour:
        """Return the expert, or a behaviour that leaves its way more or less often."""
        if name not in ERROR_RATES:
            raise EnvironmentFailure(
                f"There is no behaviour policy {name!r}.", f"Expected one of {', '.join(ERROR_RATES)}."
            )
        rng = random.Random(f"{name}/{task.id}/{seed}")
        thing = json.loads(task.spec)["thing"]
        mistakes = [
            f"take {thing}",
            f"put {thing} on table",
            "open box 99",
            f"take {rng.choice(THINGS)}",
            "?",
            "<success>",
        ]

        def act(trajectory: Trajectory, admissible: Sequence[str]) -> tuple[str, str]:
            others = mistakes if name == "near_miss" else [*admissible, *mistakes]
            is_error = rng.random() < ERROR_RATES[name]
            return "", rng.choice(others) if is_error else _expert_action(trajectory, thing)

        return act

    def revealing(self, trajectory: Trajectory, action: str, next_state: str) -> bool:
        """Return True at the first look into a box: no history could tell what lies there."""
        box = f"{next_state.partition(':')[0]}:"
        return next_state.startswith("Box ") and box not in "\n".join(trajectory.states)


def _expert_action(trajectory: Trajectory, thing: str) -> str:
    opened = {step.action: step.next_state for step in trajectory.steps if step.next_state.startswith("Box ")}
    state = trajectory.states[-1]
    if f"Holding: {thing}" in state or f": {thing}." in state:
        return f"put {thing} on table" if "Holding: nothing" not in state else f"take {thing}"
    with_thing = [box for box, content in opened.items() if f": {thing}." in content]
    if with_thing:
        return with_thing[0]
    return next(box for n in range(1, 15) if (box := f"open box {n}") not in opened)
