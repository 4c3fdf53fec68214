"""A batch of episodes in several real worlds; each row is played in its task's world."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from components.environments.budget import spend
from components.environments.mixed.tasks import own_task
from components.environments.protocol import LimitsRows, RealEnvironment, Step
from components.records import Task


class MixedEnvironment:
    """A `RealEnvironment` over one environment a world.

    Args:
        worlds: name of a world -> its environment, which counts its own interactions without a limit.
        budget: interactions of all worlds together that may not be exceeded; None: any number.
    """

    def __init__(self, worlds: Mapping[str, RealEnvironment], budget: int | None) -> None:
        self.budget = budget
        self.interactions = 0
        limits = [world.most_rows for world in worlds.values() if isinstance(world, LimitsRows)]
        self.most_rows = min((limit for limit in limits if limit), default=None)
        self._worlds = worlds
        self._places: list[tuple[str, int]] = []

    @property
    def admissible(self) -> Sequence[Sequence[str]]:
        """The actions that each row admits now."""
        return [self._worlds[world].admissible[place] for world, place in self._places]

    def reset(self, tasks: Sequence[Task]) -> list[str]:
        """Start one episode a task, each in its own world, and return the initial states."""
        own_tasks = [own_task(task) for task in tasks]
        rows_of: dict[str, list[int]] = {}
        self._places = []
        for row, task in enumerate(own_tasks):
            rows = rows_of.setdefault(task.environment, [])
            self._places.append((task.environment, len(rows)))
            rows.append(row)
        states = [""] * len(tasks)
        for name, rows in rows_of.items():
            answers = self._worlds[name].reset([own_tasks[row] for row in rows])
            for row, state in zip(rows, answers, strict=True):
                states[row] = state
        return states

    def step(self, actions: Sequence[str | None]) -> list[Step | None]:
        """Take one step in each row whose action is not None.

        Raises:
            EnvironmentFailure: the budget of interactions does not allow these steps.
        """
        spend(self.interactions, sum(action is not None for action in actions), self.budget)
        steps: list[Step | None] = [None] * len(actions)
        for name, world in self._worlds.items():
            rows = [row for row, (of_row, _) in enumerate(self._places) if of_row == name]
            own_actions = [actions[row] for row in rows]
            if any(action is not None for action in own_actions):
                before = world.interactions
                for row, step in zip(rows, world.step(own_actions), strict=True):
                    steps[row] = step
                self.interactions += world.interactions - before
        return steps

    def close(self) -> None:
        """Close all worlds."""
        for world in self._worlds.values():
            world.close()
