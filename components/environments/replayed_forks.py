"""Forks of a world that has none: an alternative is tried in a second world, behind the same actions.

Each alternative at step t costs t + 1 real steps, which count as interactions. A world that lists no
admissible actions lists those that were recorded for the task.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from components.environments.protocol import Environment, Forkable, LimitsRows, RealEnvironment, Step
from components.records import Task

OTHER_STATE = "the same actions led to another state"
"""Why an alternative was not tried: the world does not repeat itself."""


def forkable(
    open_world: Callable[[], RealEnvironment], recorded_actions: Mapping[str, Sequence[str]]
) -> Forkable:
    """Return a world that can try alternatives: itself if it forks, else with replays in a second one.

    Args:
        recorded_actions: id of a task -> actions that somebody took in it.
    """
    world = open_world()
    if isinstance(world, Forkable):
        return world
    try:
        second = open_world()
    except BaseException:
        world.close()
        raise
    return ReplayedForks(world, second, recorded_actions)


class ReplayedForks:
    """A world whose alternatives are tried in another one (`components.environments.protocol.Forkable`).
    `interactions` are the steps of both.
    """

    def __init__(
        self, world: RealEnvironment, second: RealEnvironment, recorded_actions: Mapping[str, Sequence[str]]
    ) -> None:
        """Args: second: of the same kind as `world`. Both are closed with this one."""
        self._world = world
        self._second = second
        self._recorded_actions = recorded_actions
        self._tasks: list[Task] = []
        self._actions: list[list[str]] = []
        self._states: list[str] = []
        self.interactions = 0

    @property
    def admissible(self) -> Sequence[Sequence[str]]:
        """What the world lists; for a row of which it lists nothing, the recorded actions of its task."""
        listed = list(self._world.admissible) or [() for _ in self._tasks]
        return [actions or self._recorded(row) for row, actions in enumerate(listed)]

    def reset(self, tasks: Sequence[Task]) -> list[str]:
        """Start one episode a task and return the initial states."""
        self._tasks, self._actions = list(tasks), [[] for _ in tasks]
        self._states = list(self._world.reset(tasks))
        return list(self._states)

    def step(self, actions: Sequence[str | None]) -> list[Step | None]:
        """Take one step in each row that has an action."""
        steps = list(self._world.step(actions))
        self._count()
        for row, (action, step) in enumerate(zip(actions, steps, strict=True)):
            if action is None or step is None:
                continue
            self._actions[row].append(action)
            self._states[row] = step.state
            if not step.info.get("admissible"):
                steps[row] = replace(step, info={**step.info, "admissible": self._recorded(row)})
        return steps

    def probe(self, actions: Sequence[Sequence[str]]) -> list[list[Step]]:
        """Execute each row's actions, each behind the row's actions so far, and return their answers.

        The answer to one that could not be tried has the reason as `failed` in its `info`.
        """
        tries = [(row, action) for row, row_actions in enumerate(actions) for action in row_actions]
        most = (self._second.most_rows if isinstance(self._second, LimitsRows) else None) or max(
            1, len(tries)
        )
        answers: list[list[Step]] = [[] for _ in actions]
        for start in range(0, len(tries), most):
            some = tries[start : start + most]
            for (row, _), answer in zip(some, self._try(some), strict=True):
                answers[row].append(answer)
        self._count()
        return answers

    def close(self) -> None:
        """Close both worlds."""
        self._world.close()
        self._second.close()

    def _count(self) -> None:
        self.interactions = self._world.interactions + self._second.interactions

    def _recorded(self, row: int) -> Sequence[str]:
        return self._recorded_actions.get(self._tasks[row].id, ())

    def _try(self, tries: Sequence[tuple[int, str]]) -> list[Step]:
        """Play the rows' episodes again in the second world, and then the alternatives."""
        states = list(self._second.reset([self._tasks[row] for row, _ in tries]))
        problems = [""] * len(tries)
        for number in range(max(len(self._actions[row]) for row, _ in tries)):
            steps = self._second.step(
                [
                    self._actions[row][number]
                    if number < len(self._actions[row]) and not problems[at]
                    else None
                    for at, (row, _) in enumerate(tries)
                ]
            )
            for at, step in enumerate(steps):
                if step is not None:
                    states[at] = step.state
                    problems[at] = str(step.info.get("failed", ""))
        for at, (row, _) in enumerate(tries):
            if not problems[at] and states[at] != self._states[row]:
                problems[at] = OTHER_STATE
        last = _answers(
            self._second, [None if problems[at] else action for at, (_, action) in enumerate(tries)]
        )
        return [
            Step(states[at], 0.0, False, {"failed": problems[at]}) if step is None else step
            for at, step in enumerate(last)
        ]


def _answers(world: Environment, actions: Sequence[str | None]) -> list[Step | None]:
    return world.step(actions) if any(action is not None for action in actions) else [None] * len(actions)
