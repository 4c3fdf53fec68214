"""A whole environment to copy: a thing lies in one of several boxes and belongs on the table.

docs/guides/add-a-world.md explains each part. Test it: dreamgym check-environment environment.name=own
environment.own.adapter=components.environments.template:TemplateAdapter
"""

import json
import random

from components.environments.protocol import Step
from components.environments.text_world.python_world import PythonWorld, PythonWorldAdapter, TaskSpec
from components.records import TEST, TRAIN, VALIDATION, Task, Trajectory

THINGS = "coin key ring pen cup map egg rope lamp ball book bell comb fork glove nail shoe spoon stone watch"


class BoxWorld(PythonWorld):
    """One episode. An action that is impossible or senseless is answered like any other."""

    def start(self, thing: str, place: int, boxes: int, **_: object) -> str:
        """Return the initial state, the same at every start of the task."""
        self.thing, self.place, self.boxes, self.opened, self.is_held = thing, place, boxes, 0, False
        return self._state(f"Boxes: {', '.join(f'box {n}' for n in range(1, boxes + 1))}")

    def act(self, action: str) -> Step:
        """Take one step: the state after it, the reward, and whether the episode is over."""
        if action not in self.admissible:
            return Step(self._state("Nothing happens"), 0.0, False)
        if action.startswith("open"):
            self.opened = int(action.split()[-1])
            is_here = self.opened == self.place and not self.is_held
            return Step(self._state(f"Box {self.opened}: {self.thing if is_here else 'empty'}"), 0.0, False)
        is_won, self.is_held = self.is_held, not self.is_held
        text = f"{'On the table' if is_won else 'Took'}: {self.thing}"
        return Step(self._state(text), float(is_won), is_won)

    def _state(self, text: str) -> str:
        self.admissible = [f"open box {n}" for n in range(1, self.boxes + 1)]
        self.admissible += [f"take {self.thing}"] * (self.opened == self.place and not self.is_held)
        self.admissible += [f"put {self.thing} on table"] * self.is_held
        return f"{text}. Holding: {self.thing if self.is_held else 'nothing'}."


class TemplateAdapter(PythonWorldAdapter):
    """All that the pipeline knows of boxes. `PlainAdapter` answers the rest, as for any world."""

    world, refusals, splits = BoxWorld, ("Nothing happens",), (TRAIN, VALIDATION, TEST)

    def specs(self, split: str) -> list[TaskSpec]:
        """Rooms with an even number of boxes are for training, those with an odd one for the others."""
        first, step = {TRAIN: (1, 1), VALIDATION: (2, 2), TEST: (1, 2)}[split]
        rooms = [(thing, boxes) for thing in THINGS.split() for boxes in range(4 + (split != TRAIN), 14, 2)]
        return [
            TaskSpec(
                f"{thing}-{boxes}-{place}",
                f"put the {thing} on the table",
                {"thing": thing, "boxes": boxes, "place": place},
            )
            for thing, boxes in rooms
            for place in range(first, boxes + 1, step)
        ]

    def mistakes(self, task: Task, rng: random.Random) -> list[str]:
        """Actions that are impossible or senseless, from which the dream learns what is refused."""
        thing = json.loads(task.spec)["thing"]
        moves = [f"take {thing}", f"put {thing} on table", "open box 99"]
        return [*moves, f"take {rng.choice(THINGS.split())}", "?", "<success>"]

    def expert(self, task: Task, trajectory: Trajectory) -> str:
        """Open the boxes in order, take the thing, and put it on the table."""
        thing, state = json.loads(task.spec)["thing"], trajectory.states[-1]
        if f"Holding: {thing}" in state or f": {thing}." in state:
            return f"put {thing} on table" if "Holding: nothing" not in state else f"take {thing}"
        seen = {
            step.action: step.next_state for step in trajectory.steps if step.next_state.startswith("Box ")
        }
        with_thing = [box for box, content in seen.items() if f": {thing}." in content]
        return next(iter(with_thing), "") or next(
            b for n in range(1, 15) if (b := f"open box {n}") not in seen
        )

    def revealing(self, trajectory: Trajectory, action: str, next_state: str) -> bool:
        """Return True at the first look into a box: no history could tell what lies there."""
        box = f"{next_state.partition(':')[0]}:"
        return next_state.startswith("Box ") and box not in "\n".join(trajectory.states)
