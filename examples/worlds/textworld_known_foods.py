"""The kitchen of `textworld_cooking.py`, with held-out games of known foods and logs that leave steps out.

    dreamgym retrain --config examples/worlds/textworld_known_foods.yaml

All games are of the package's training split, so that held-out games have the foods and cuts of the training
games in kitchens of their own. `near_miss` is an agent that also does things too early, as language models
do: it prepares a meal of food that it has not cut, or takes food from a fridge that it has not opened. Only
such logs show what the kitchen asks for first.
"""

import random
from collections.abc import Sequence

from components.environments.protocol import Behaviour
from components.environments.text_world.python_world import TaskSpec
from components.records import TEST, TRAIN, VALIDATION, Task, Trajectory, Transition
from examples.worlds.textworld_cooking import CookingAdapter

SEEDS = {TRAIN: range(2000), VALIDATION: range(2000, 2500), TEST: range(3000, 4000)}
"""Split -> its seeds of the package's training split."""
TOO_EARLY = 0.4
"""Share of a near miss's steps in which it leaves out what is due."""
LAST = "eat meal"


class KnownFoodsAdapter(CookingAdapter):
    """Held-out games with the foods and cuts of the training games."""

    splits = tuple(SEEDS)

    def specs(self, split: str) -> list[TaskSpec]:
        """The games of the split's seeds."""
        return [TaskSpec(f"known-{seed}", "", {"split": "train", "seed": seed}) for seed in SEEDS[split]]

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
        due = self.expert(task, trajectory)
        if due == LAST:
            return due
        imagined = Transition(task.id, "", len(trajectory.steps), "", due, "", reward=0.0, done=False)
        return self.expert(task, trajectory.with_step(imagined))
