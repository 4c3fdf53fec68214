"""A whole environment to copy: something lies in one of several boxes and belongs on the table
(docs/guides/add-a-world.md).

dreamgym check-environment environment.name=own
environment.own.adapter=components.environments.template:TemplateAdapter
"""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from dataclasses import replace

from components.config.worlds.environment_config import EnvironmentConfig
from components.environments.protocol import Behaviour, Environment, Step
from components.environments.text_world.plain_adapter import PlainAdapter, drawn, task_of
from components.environments.validation_split import require_split
from components.environments.vectorized import RowsEnvironment
from components.errors import EnvironmentFailure
from components.records import TEST, TRAIN, VALIDATION, Task, Trajectory

THINGS: tuple[str, ...] = ("coin", "key", "ring", "pen", "cup", "map", "egg", "rope", "lamp", "ball")
THINGS += ("book", "bell", "comb", "fork", "glove", "nail", "shoe", "spoon", "stone", "watch")
SLIPS = {"expert": 0.0, "noisy": 0.2, "near_miss": 0.5, "random": 1.0}


class BoxWorld:
    """One episode. What it raises counts as a failure of the world, never as the agent's."""

    def begin(self, task: Task) -> str:
        """The initial state, the same at every start of the task."""
        spec = json.loads(task.spec)
        self.thing, self.place, self.boxes, self.opened, self.held = (
            spec["thing"],
            spec["place"],
            spec["boxes"],
            0,
            False,
        )
        return self._seen(f"Boxes: {', '.join(f'box {n}' for n in range(1, self.boxes + 1))}")

    def act(self, action: str) -> Step:
        """An action that is impossible or nonsense is answered like any other."""
        if action not in self.admissible:
            return Step(self._seen("Nothing happens"), 0.0, False)
        if action.startswith("open"):
            self.opened = int(action.split()[-1])
            return Step(
                self._seen(f"Box {self.opened}: {self.thing if self._here() else 'empty'}"), 0.0, False
            )
        self.held, won = not self.held, self.held
        return Step(self._seen(f"{'On the table' if won else 'Took'}: {self.thing}"), float(won), won)

    def close(self) -> None:
        """Nothing to free."""

    def _here(self) -> bool:
        return self.opened == self.place and not self.held

    def _seen(self, words: str) -> str:
        more = [f"take {self.thing}"] * self._here() + [f"put {self.thing} on table"] * self.held
        self.admissible = (*(f"open box {n}" for n in range(1, self.boxes + 1)), *more)
        return f"{words}. Holding: {self.thing if self.held else 'nothing'}."


class TemplateAdapter(PlainAdapter):
    """All that the pipeline knows of boxes. What is not here, `PlainAdapter` answers for any world."""

    name, refusals = "own", ("Nothing happens",)
    splits = (TRAIN, VALIDATION, TEST)

    def __init__(self, config: EnvironmentConfig) -> None:
        self.seed = config.seed

    def tasks(self, split: str, count: int, seed: int) -> list[Task]:
        """Rooms with an even number of boxes train. Of the others, an odd box is for tests, an even one for
        validation.
        """
        require_split(split, self.splits)
        sizes = range(4 if split == TRAIN else 5, 14, 2)
        places = {TRAIN: (1, 1), VALIDATION: (2, 2), TEST: (1, 2)}[split]
        rooms = [(t, n, p) for t in THINGS for n in sizes for p in range(places[0], n + 1, places[1])]
        chosen, world = drawn(random.Random(f"{split}/{self.seed}/{seed}"), rooms, count, split), BoxWorld()
        made = [
            task_of(
                self.name, f"{t}-{n}-{p}", split, f"put the {t} on the table", "", thing=t, boxes=n, place=p
            )
            for t, n, p in chosen
        ]
        return [replace(task, initial_state=world.begin(task)) for task in made]

    def open(
        self, budget: int | None = None, *, workers: int | None = None, stock: bool = False
    ) -> Environment:
        """A world for each row."""
        return RowsEnvironment(BoxWorld, budget)

    def behaviour(self, name: str, task: Task, seed: int) -> Behaviour:
        """The expert, and others that leave its way more or less often."""
        if name not in SLIPS:
            raise EnvironmentFailure(
                f"There is no behaviour policy {name!r}.", f"Expected one of {', '.join(SLIPS)}."
            )
        rng, thing = random.Random(f"{name}/{task.id}/{seed}"), json.loads(task.spec)["thing"]
        tempting = [
            f"take {thing}",
            f"put {thing} on table",
            "open box 99",
            f"take {rng.choice(THINGS)}",
            "?",
            "<success>",
        ]

        def act(trajectory: Trajectory, admissible: Sequence[str]) -> tuple[str, str]:
            others = tempting if name == "near_miss" else [*admissible, *tempting]
            return "", rng.choice(others) if rng.random() < SLIPS[name] else _next(trajectory, thing)

        return act

    def revealing(self, trajectory: Trajectory, action: str, next_state: str) -> bool:
        """True at the first look into a box: no history could tell what lies there."""
        return next_state.startswith("Box ") and f"{next_state.partition(':')[0]}:" not in "\n".join(
            trajectory.states
        )


def _next(trajectory: Trajectory, thing: str) -> str:
    opened = {step.action: step.next_state for step in trajectory.steps if step.next_state.startswith("Box ")}
    if f"Holding: {thing}" in trajectory.states[-1] or f": {thing}." in trajectory.states[-1]:
        return f"put {thing} on table" if "Holding: nothing" not in trajectory.states[-1] else f"take {thing}"
    seen = [box for box, state in opened.items() if f": {thing}." in state]
    return seen[0] if seen else next(box for n in range(1, 15) if (box := f"open box {n}") not in opened)
