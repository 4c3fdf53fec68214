"""The real browser of a batch of tasks: one tab a row in a pool of browsers; counts its interactions and
refuses to exceed its budget.

A row whose browser died or whose page hangs is answered with `info["failed"]` and is over: infrastructure's
failure, never the agent's. The other rows go on, and the next episode has a new browser.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from components.environments.browser.engine.gym_tasks import PLAYED, of_the_web
from components.environments.browser.engine.pool import Browsers, PoolSettings
from components.environments.browser.engine.tab import Fork, Seen
from components.environments.budget import spend
from components.environments.protocol import Step
from components.errors import EnvironmentFailure
from components.records import Task

_ANEW = (
    "Another Chromium, other fonts or a changed site? Record anew with it: dreamgym collect --config "
    "YOUR_CONFIG."
)


class BrowserEnvironment:
    """The real world of a batch of tasks (`components.environments.protocol.Environment`, and `Forkable` for
    MiniWoB).
    """

    def __init__(self, settings: PoolSettings, budget: int | None = None) -> None:
        self.interactions = 0
        self.budget = budget
        self.browsers = Browsers(settings)
        self.admissible: list[tuple[str, ...]] = []
        self._tasks: list[Task] = []
        self._states: list[str] = []
        self._actions: list[list[str]] = []
        self._broken: dict[int, str] = {}

    def reset(self, tasks: Sequence[Task]) -> list[str]:
        """Open each task's page. A row whose page does not open, or shows something else than was recorded,
        is over at its first step, with the reason.

        Raises:
            EnvironmentFailure: a task was made up and has no page of its own, or none of several pages opens.
        """
        for task in tasks:
            if task.generated:
                found = f"The task {task.id} was generated: it has no real world."
                raise EnvironmentFailure(
                    found, next_step="Evaluate on recorded tasks; no page judges a made-up one."
                )
        answers = self.browsers.load({row: spec_of(task) for row, task in enumerate(tasks)})
        self._broken = {row: answer for row, answer in answers.items() if isinstance(answer, str)}
        if 1 < len(tasks) == len(self._broken):
            raise EnvironmentFailure(
                f"No page opens, as {tasks[0].id}: {self._broken[0]}", next_step="Type `dreamgym doctor`."
            )
        changed = {
            row: seen
            for row, seen in answers.items()
            if isinstance(seen, Seen) and seen.state != tasks[row].initial_state
        }
        self._broken |= {
            row: f"{tasks[row].id} began with {seen.state!r}, not as recorded. {_ANEW}"
            for row, seen in changed.items()
        }
        if 1 < len(tasks) == len(self._broken) and changed:
            row = min(changed)
            raise EnvironmentFailure(
                f"No page is the one recorded, as {tasks[row].id}: it shows {changed[row].state!r}.",
                f"Expected {tasks[row].initial_state!r}.",
                _ANEW,
            )
        seen = [
            answers[row] if row not in self._broken else Seen(tasks[row].initial_state)
            for row in range(len(tasks))
        ]
        self._tasks, self._actions = list(tasks), [[] for _ in tasks]
        self._states = [one.state for one in seen if isinstance(one, Seen)]
        self.admissible = [one.admissible for one in seen if isinstance(one, Seen)]
        return list(self._states)

    def step(self, actions: Sequence[str | None]) -> list[Step | None]:
        """One step for each row with an action. One that is broken already takes none, and costs none.

        Raises:
            EnvironmentFailure: the budget of interactions does not allow these steps.
        """
        chosen = {row: action for row, action in enumerate(actions) if action is not None}
        self.interactions = spend(self.interactions, len(chosen.keys() - self._broken.keys()), self.budget)
        answers: dict[Any, Any] = {row: self._broken[row] for row in chosen if row in self._broken}
        answers |= self.browsers.step(
            {row: action for row, action in chosen.items() if row not in self._broken}
        )
        return [
            self._answer(row, chosen[row], answers[row]) if row in chosen else None
            for row in range(len(actions))
        ]

    def probe(self, actions: Sequence[Sequence[str]]) -> list[list[Step]]:
        """What each of a row's actions would lead to; the rows stay where they are.

        A page cannot be forked, but a MiniWoB page is given by its seed: each alternative is tried in another
        tab in which the episode is played again up to here; where that comes to another state than the row's,
        its alternatives have failed. All of these steps are real, so all of them count.

        Raises:
            EnvironmentFailure: the budget does not allow these steps, or the tasks play on the web, where
                nothing can be played again.
        """
        forks = {
            row: Fork(spec_of(self._tasks[row]), tuple(self._actions[row]), self._states[row], tuple(some))
            for row, some in enumerate(actions)
            if some
        }
        web = next((self._tasks[row].id for row, fork in forks.items() if of_the_web(fork.spec)), None)
        if web is not None:
            raise EnvironmentFailure(
                f"{web} plays on a live site, where no step can be tried and taken back.",
                "Set cloning.early_experience=none.",
            )
        steps = sum((len(fork.history) + 1) * len(fork.alternatives) for fork in forks.values())
        self.interactions = spend(self.interactions, steps, self.budget)
        answers = self.browsers.probe(forks)
        return [
            [self._alternative(row, seen) for seen in _each(answers.get(row, []), len(some))]
            for row, some in enumerate(actions)
        ]

    def close(self) -> None:
        """End the browsers. May be called twice."""
        self.browsers.close()

    def _alternative(self, row: int, seen: Seen | str) -> Step:
        if isinstance(seen, str):
            return Step(self._states[row], 0.0, True, {"failed": seen})
        return Step(seen.state, seen.reward, seen.done, _info(seen))

    def _answer(self, row: int, action: str, seen: Seen | str) -> Step:
        if isinstance(seen, str):
            self._broken[row] = seen
            return Step(self._states[row], 0.0, True, {"failed": seen, "admissible": ()})
        self._actions[row].append(action)
        self._states[row], self.admissible[row] = seen.state, seen.admissible
        return Step(seen.state, seen.reward, seen.done, _info(seen) | {"admissible": seen.admissible})


def _info(seen: Seen) -> dict[str, Any]:
    return {"observation": seen.state, "raw_reward": seen.raw_reward}


def _each(found: Any, count: int) -> list[Any]:
    return [found] * count if isinstance(found, str) else list(found)


def spec_of(task: Task) -> Mapping[str, Any]:
    """What opens the page of `task`.

    Raises:
        EnvironmentFailure: it is no task of a benchmark, such as an address that a stranger's data would have
            us open.
    """
    try:
        spec = json.loads(task.spec)
    except ValueError:
        spec = None
    if not isinstance(spec, dict) or str(spec.get("task", "")).partition(".")[0] not in PLAYED:
        example = "Expected one such as {'task': 'miniwob.click-test-2', 'seed': 3}."
        raise EnvironmentFailure(f"The task {task.id} has the spec {task.spec[:80]!r}.", example)
    return spec
