"""The real ALFWorld environment: a batch of games in worker processes, counted and limited by a budget."""

from __future__ import annotations

import copy
import json
import os
from collections.abc import Sequence
from pathlib import Path

from components.environments.alfworld.games import GameSpec
from components.environments.alfworld.states import StateMapper
from components.environments.alfworld.workers import Answer, Workers
from components.environments.budget import spend
from components.environments.protocol import Step
from components.errors import EnvironmentFailure
from components.records import Task


def official_root() -> Path:
    """Return the folder of the official games.

    Raises:
        EnvironmentFailure: `$ALFWORLD_DATA` does not name a folder.
    """
    root = os.environ.get("ALFWORLD_DATA", "")
    if not root or not Path(root).is_dir():
        raise EnvironmentFailure(
            f"ALFWORLD_DATA is {root!r}.",
            "Expected the folder of the official games.",
            "Run `alfworld-download`, or set environment.games=generated.",
        )
    return Path(root)


def read_game(spec: str) -> GameSpec | Path:
    """Return the game of a task's `spec`: a generated game, or the path of an official one.

    Raises:
        EnvironmentFailure: the text is no game, or its path lies outside the folder of the official games.
    """
    try:
        values = json.loads(spec)
    except ValueError:
        values = None
    if not isinstance(values, dict) or "path" not in values:
        return GameSpec.from_json(spec)  # its message says what is wrong with the text
    root = official_root().resolve()
    path = (root / values["path"]).resolve()
    if not path.is_relative_to(root):
        raise EnvironmentFailure(
            f"The game {values['path']!r} lies outside {root}.", "Expected a path below $ALFWORLD_DATA."
        )
    return path


class AlfworldEnvironment:
    """The real world of a batch of tasks. It counts its interactions and refuses to exceed its budget."""

    def __init__(self, workers: int, budget: int | None = None, *, cached: bool = True) -> None:
        self.interactions = 0
        self.budget = budget
        self.admissible: list[tuple[str, ...]] = []
        self._workers = Workers(workers, cached=cached)
        self._mappers: list[StateMapper] = []
        self._states: list[str] = []

    def reset(self, tasks: Sequence[Task]) -> list[str]:
        """Load and start each task's game.

        Raises:
            EnvironmentFailure: a game cannot be loaded, or a task was generated and has no world of its own.
        """
        for task in tasks:
            if task.generated:
                raise EnvironmentFailure(
                    f"The task {task.id} was generated: it has no real world.",
                    next_step="Embody a dreamed episode of it.",
                )
        observations = self._workers.load({row: read_game(task.spec) for row, task in enumerate(tasks)})
        rows = range(len(tasks))
        self._mappers = [StateMapper() for _ in tasks]
        self._states = [self._mappers[row].initial(observations[row].text) for row in rows]
        self.admissible = [observations[row].admissible for row in rows]
        return list(self._states)

    def step(self, actions: Sequence[str | None]) -> list[Step | None]:
        """Take one step in each row with an action.

        Raises:
            EnvironmentFailure: the budget of interactions does not allow these steps.
        """
        commands = {row: action for row, action in enumerate(actions) if action is not None}
        self.interactions = spend(self.interactions, len(commands), self.budget)
        answers = self._workers.step(commands)
        return [self._advance(row, answers[row]) if row in answers else None for row in range(len(actions))]

    def probe(self, actions: Sequence[Sequence[str]]) -> list[list[Step]]:
        """Execute each row's actions in forks of its game; the rows stay where they are.

        Raises:
            EnvironmentFailure: the budget of interactions does not allow these steps.
        """
        self.interactions = spend(self.interactions, sum(map(len, actions)), self.budget)
        answers = self._workers.probe(
            {row: list(commands) for row, commands in enumerate(actions) if commands}
        )
        return [
            [self._alternative(row, answer) for answer in answers.get(row, [])] for row in range(len(actions))
        ]

    def _alternative(self, row: int, answer: Answer) -> Step:
        """Return the step that a fork of the row's game took."""
        if isinstance(answer, str):
            return Step(self._states[row], 0.0, True, {"failed": answer})
        state = copy.deepcopy(self._mappers[row])(answer.text)
        return Step(state, float(answer.won), bool(answer.won), {"observation": answer.text})

    def _advance(self, row: int, answer: Answer) -> Step:
        """Return the step that the row took, and remember where it stands now."""
        if isinstance(answer, str):
            return Step(self._states[row], 0.0, True, {"failed": answer})
        self._states[row] = self._mappers[row](answer.text)
        self.admissible[row] = answer.admissible
        info = {"observation": answer.text, "admissible": answer.admissible}
        return Step(self._states[row], 1.0 if answer.won else 0.0, bool(answer.won), info)

    def close(self) -> None:
        """End the worker processes."""
        self._workers.close()
