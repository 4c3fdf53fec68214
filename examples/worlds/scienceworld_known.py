"""The tasks of `scienceworld_find.py`, with held-out tasks in known rooms and logs that leave steps out.

    dreamgym retrain --config examples/worlds/scienceworld_known.yaml

All tasks are of the package's training split: its test split asks for boxes in rooms that no training task
names. `near_miss` is an agent that also does things too early, as language models do: it goes through a door
that it has not opened, or moves a thing that it has not picked up. Only such logs show what the world asks
for first.
"""

import random
from collections.abc import Sequence

from components.environments.protocol import Behaviour
from components.environments.text_world.python_world import TaskSpec
from components.records import TEST, TRAIN, VALIDATION, Task, Trajectory
from examples.worlds.scienceworld_find import EASIER, IDLE, NAMES, FindAdapter, idle_simulator

SPLITS = {TRAIN: slice(0, 85), VALIDATION: slice(85, 100), TEST: slice(100, 150)}
"""Split -> its part of the shuffled training variations of each of the four tasks."""
TOO_EARLY = 0.2
"""Share of a near miss's steps in which it leaves out what is due."""


class KnownRoomsAdapter(FindAdapter):
    """Held-out tasks drawn as the training tasks are."""

    splits = tuple(SPLITS)
    error_rates = {**FindAdapter.error_rates, "noisy": 0.4}

    def specs(self, split: str) -> list[TaskSpec]:
        """The split's variations."""
        simulator = idle_simulator()
        found = []
        for name in NAMES:
            simulator.load(name, 0, EASIER)
            variations = sorted(simulator.get_variations_train())
            random.Random(name).shuffle(variations)
            found += [
                TaskSpec(f"{name}-{number}", "", {"name": name, "variation": number}, family=name)
                for number in variations[SPLITS[split]]
            ]
        IDLE.append(simulator)
        return found

    def behaviour(self, name: str, task: Task, seed: int) -> Behaviour:
        """A near miss is a weak agent that does things too early."""
        if name != "near_miss":
            return super().behaviour(name, task, seed)
        weak = super().behaviour("noisy", task, seed)
        rng = random.Random(f"too early/{task.id}/{seed}")

        def act(trajectory: Trajectory, admissible: Sequence[str]) -> tuple[str, str]:
            if rng.random() < TOO_EARLY:
                return "", self.after_the_next(task, trajectory)
            return weak(trajectory, admissible)

        return act

    def after_the_next(self, task: Task, trajectory: Trajectory) -> str:
        """What the expert would do if it had done what is due."""
        due = self.actions_due(task, trajectory)
        return due[min(1, len(due) - 1)] if due else self.expert(task, trajectory)
