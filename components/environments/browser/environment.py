"""The real browser of a batch of tasks: one tab per row in a pool of browsers, and a budget of interactions.

A row whose browser died or whose page hangs is over and is answered with `info["failed"]`: an infrastructure
failure, never the agent's. The other rows continue, and the next episode has a new browser.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from components.environments.browser.engine.gym_tasks import BENCHMARKS, is_web_task
from components.environments.browser.engine.messages import Fork, Observation, PoolSettings
from components.environments.browser.engine.pool import Browsers
from components.environments.budget import spend
from components.environments.protocol import Step
from components.errors import EnvironmentFailure
from components.records import Task

_RECORD_AGAIN = (
    "Another Chromium, other fonts or a changed site? Record the data again: dreamgym collect --config "
    "YOUR_CONFIG."
)


class BrowserEnvironment:
    """The real world of a batch of tasks (`components.environments.protocol.Environment`).

    It is also `Forkable` for MiniWoB.
    """

    def __init__(self, settings: PoolSettings, budget: int | None = None) -> None:
        self.interactions = 0
        self.budget = budget
        self.browsers = Browsers(settings)
        self.admissible: list[tuple[str, ...]] = []
        self._tasks: list[Task] = []
        self._states: list[str] = []
        self._actions: list[list[str]] = []
        self._failures: dict[int, str] = {}

    def reset(self, tasks: Sequence[Task]) -> list[str]:
        """Open each task's page and return the initial states.

        A row whose page does not open, or shows something else than was recorded, is over at its first step,
        with the reason.

        Raises:
            EnvironmentFailure: a task was generated and has no page of its own, or none of several pages
                opens.
        """
        for task in tasks:
            if task.generated:
                raise EnvironmentFailure(
                    f"The task {task.id} was generated: it has no real world.",
                    next_step="Evaluate on recorded tasks; no page judges a generated one.",
                )
        answers = self.browsers.load({row: spec_of(task) for row, task in enumerate(tasks)})
        self._failures = {row: answer for row, answer in answers.items() if isinstance(answer, str)}
        if 1 < len(tasks) == len(self._failures):
            raise EnvironmentFailure(
                f"No page opens, as {tasks[0].id}: {self._failures[0]}", next_step="Type `dreamgym doctor`."
            )
        self._refuse_changed_pages(tasks, answers)
        observations = [
            answers[row] if row not in self._failures else Observation(tasks[row].initial_state)
            for row in range(len(tasks))
        ]
        self._tasks = list(tasks)
        self._actions = [[] for _ in tasks]
        self._states = [one.state for one in observations if isinstance(one, Observation)]
        self.admissible = [one.admissible for one in observations if isinstance(one, Observation)]
        return list(self._states)

    def _refuse_changed_pages(self, tasks: Sequence[Task], answers: Mapping[int, Observation | str]) -> None:
        """Mark rows as failed whose page shows another state than was recorded.

        Raises:
            EnvironmentFailure: none of several pages is usable, and some have changed.
        """
        changed = {
            row: answer
            for row, answer in answers.items()
            if isinstance(answer, Observation) and answer.state != tasks[row].initial_state
        }
        self._failures |= {
            row: f"{tasks[row].id} began with {observation.state!r}, not as recorded. {_RECORD_AGAIN}"
            for row, observation in changed.items()
        }
        if 1 < len(tasks) == len(self._failures) and changed:
            row = min(changed)
            raise EnvironmentFailure(
                f"No page is the one recorded, as {tasks[row].id}: it shows {changed[row].state!r}.",
                f"Expected {tasks[row].initial_state!r}.",
                _RECORD_AGAIN,
            )

    def step(self, actions: Sequence[str | None]) -> list[Step | None]:
        """Take one step for each row with an action. A row that has failed takes none, and costs none.

        Raises:
            EnvironmentFailure: the budget of interactions does not allow these steps.
        """
        row_actions = {row: action for row, action in enumerate(actions) if action is not None}
        self.interactions = spend(
            self.interactions, len(row_actions.keys() - self._failures.keys()), self.budget
        )
        answers: dict[Any, Any] = {row: self._failures[row] for row in row_actions if row in self._failures}
        answers |= self.browsers.step(
            {row: action for row, action in row_actions.items() if row not in self._failures}
        )
        return [
            self._take_answer(row, row_actions[row], answers[row]) if row in row_actions else None
            for row in range(len(actions))
        ]

    def probe(self, actions: Sequence[Sequence[str]]) -> list[list[Step]]:
        """Return what each of a row's actions would lead to; the rows stay where they are.

        A page cannot be forked, but a MiniWoB page is given by its seed. So each alternative is tried in
        another tab after a replay of the episode. If the replay reaches another state than the row's, the
        row's alternatives fail. All of these steps are real, so all of them count.

        Raises:
            EnvironmentFailure: the budget does not allow these steps, or the tasks play on the web, where
                nothing can be replayed.
        """
        forks = {
            row: Fork(
                spec_of(self._tasks[row]), tuple(self._actions[row]), self._states[row], tuple(alternatives)
            )
            for row, alternatives in enumerate(actions)
            if alternatives
        }
        web_task = next((self._tasks[row].id for row, fork in forks.items() if is_web_task(fork.spec)), None)
        if web_task is not None:
            raise EnvironmentFailure(
                f"{web_task} plays on a live site, where no step can be tried and taken back.",
                "Set cloning.early_experience=none.",
            )
        steps = sum((len(fork.history) + 1) * len(fork.alternatives) for fork in forks.values())
        self.interactions = spend(self.interactions, steps, self.budget)
        answers = self.browsers.probe(forks)
        return [
            [
                self._alternative_step(row, answer)
                for answer in _answer_per_action(answers.get(row, []), len(alternatives))
            ]
            for row, alternatives in enumerate(actions)
        ]

    def close(self) -> None:
        """End the browsers. May be called twice."""
        self.browsers.close()

    def _alternative_step(self, row: int, answer: Observation | str) -> Step:
        if isinstance(answer, str):
            return Step(self._states[row], 0.0, True, {"failed": answer})
        return Step(answer.state, answer.reward, answer.done, _step_info(answer))

    def _take_answer(self, row: int, action: str, answer: Observation | str) -> Step:
        if isinstance(answer, str):
            self._failures[row] = answer
            return Step(self._states[row], 0.0, True, {"failed": answer, "admissible": ()})
        self._actions[row].append(action)
        self._states[row] = answer.state
        self.admissible[row] = answer.admissible
        return Step(
            answer.state, answer.reward, answer.done, _step_info(answer) | {"admissible": answer.admissible}
        )


def _step_info(observation: Observation) -> dict[str, Any]:
    return {"observation": observation.state, "raw_reward": observation.raw_reward}


def _answer_per_action(answer: Any, count: int) -> list[Any]:
    return [answer] * count if isinstance(answer, str) else list(answer)


def spec_of(task: Task) -> Mapping[str, Any]:
    """Return the spec that opens the page of `task`.

    Raises:
        EnvironmentFailure: it is no task of a benchmark, such as an address in foreign data that must not be
            opened.
    """
    try:
        spec = json.loads(task.spec)
    except ValueError:
        spec = None
    if not isinstance(spec, dict) or str(spec.get("task", "")).partition(".")[0] not in BENCHMARKS:
        raise EnvironmentFailure(
            f"The task {task.id} has the spec {task.spec[:80]!r}.",
            "Expected one such as {'task': 'miniwob.click-test-2', 'seed': 3}.",
        )
    return spec
