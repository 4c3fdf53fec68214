"""A whole environment to copy: a thing lies in one of several boxes and is to be taken.

docs/guides/add-a-world.md explains each part. Test it: dreamgym check-environment environment.name=own
environment.own.adapter=components.environments.template:TemplateAdapter
"""

import random

from components.environments.protocol import Step
from components.environments.text_world.python_world import PythonWorld, PythonWorldAdapter, TaskSpec
from components.records import TEST, TRAIN, VALIDATION, Task, Trajectory

THINGS = "coin key ring pen cup map egg rope lamp ball book bell comb fork glove nail shoe spoon stone watch"


class BoxWorld(PythonWorld):
    """One episode. An action that is impossible or senseless is answered like any other."""

    def start(self, thing: str, place: int, boxes: int, **_: object) -> str:
        """Return the initial state, the same at every start of the task."""
        self.thing, self.place, self.opened = thing, place, 0
        self.admissible = [*(f"open box {n}" for n in range(1, boxes + 1)), f"take {thing}"]
        return f"Boxes: {', '.join(f'box {n}' for n in range(1, boxes + 1))}."

    def act(self, action: str) -> Step:
        """Take one step: the state after it, the reward, and whether the episode is over."""
        if action == f"take {self.thing}" and self.opened == self.place:
            return Step(f"Taken: {self.thing}.", 1.0, True)
        if action not in self.admissible or action.startswith("take"):
            return Step("Nothing happens.", 0.0, False)
        self.opened = int(action.split()[-1])
        return Step(f"Box {self.opened}: {self.thing if self.opened == self.place else 'empty'}.", 0.0, False)


class TemplateAdapter(PythonWorldAdapter):
    """All that the pipeline knows of boxes. `PlainAdapter` answers the rest, as for any world."""

    world, refusals, splits = BoxWorld, ("Nothing happens",), (TRAIN, VALIDATION, TEST)

    def specs(self, split: str) -> list[TaskSpec]:
        """Rooms with an even number of boxes are for training, those with an odd one for the others."""
        first, step = {TRAIN: (1, 1), VALIDATION: (2, 2), TEST: (1, 2)}[split]
        counts = range(4 + (split != TRAIN), 14, 2)
        places = [(t, n, c) for t in THINGS.split() for c in counts for n in range(first, c + 1, step)]
        values = [{"thing": thing, "place": place, "boxes": count} for thing, place, count in places]
        return [TaskSpec("{thing}-{boxes}-{place}".format(**v), f"take the {v['thing']}", v) for v in values]

    def mistakes(self, task: Task, rng: random.Random) -> list[str]:
        """Actions that are impossible or senseless, from which the dream learns what is refused."""
        thing, other = task.instruction.split()[-1], rng.choice(THINGS.split())
        return [f"take {thing}", f"take {other}", "open box 99", "?", "<success>"]

    def expert(self, task: Task, trajectory: Trajectory) -> str:
        """Open the boxes in order until the thing is seen, and take it."""
        thing = task.instruction.split()[-1]
        if trajectory.states[-1].endswith(f": {thing}."):
            return f"take {thing}"
        tried = [step.action for step in trajectory.steps]
        found = [step.action for step in trajectory.steps if step.next_state.endswith(f": {thing}.")]
        return [*found, *(box for n in range(1, 15) if (box := f"open box {n}") not in tried)][0]
