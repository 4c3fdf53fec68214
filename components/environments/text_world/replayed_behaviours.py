"""Behaviour policies for a world without an expert: recorded solutions, altered ones, and random actions.

| policy | what it does |
|---|---|
| `expert` | plays the recorded solution of the task |
| `noisy` | the same, but in three steps of ten another action is played first |
| `near_miss` | the same with one action replaced, so that most of it is right and the end often is not |
| `random` | any action that the world lists, else one of the configured; one in ten is no command at all |
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from pathlib import Path

from components.environments.protocol import Behaviour
from components.errors import DataError, EnvironmentFailure
from components.files import parse_json
from components.records import Task, Trajectory

BEHAVIOURS = ("expert", "noisy", "near_miss", "random")
_NONSENSE = ("?", "do it", "xyzzy {}", "{} {}", "the {}", "<success>", "42")


def read_demonstrations(path: str) -> dict[str, list[str]]:
    """Return task id -> actions, from a file of JSON lines; empty if `path` is.

    Raises:
        DataError: the file is missing, or a line is not of that form; the line is named.
    """
    if not path:
        return {}
    try:
        lines = Path(path).read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(
            f"The demonstrations {path} cannot be read: {error}", "Expected a file of JSON lines."
        ) from None
    solutions: dict[str, list[str]] = {}
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        entry = _parse_entry(line)
        if entry is None:
            raise DataError(
                f"Line {number} of {path} is {line[:80]!r}.",
                'Expected {"task": "an id", "actions": ["first", "second"]}.',
            )
        task, actions = entry
        if task in solutions:
            raise DataError(
                f"Line {number} of {path} has the task {task!r}, which an earlier line has already.",
                "Expected one line for each task.",
                "Leave one of them out.",
            )
        solutions[task] = actions
    return solutions


def _parse_entry(line: str) -> tuple[str, list[str]] | None:
    """Return a line's (task id, actions); None if it is not of that form."""
    try:
        entry = parse_json(line)
        task = entry["task"]
        actions = entry["actions"]
    except (ValueError, KeyError, TypeError):
        return None
    if not isinstance(task, str) or not isinstance(actions, list) or not actions:
        return None
    return (task, actions) if all(isinstance(action, str) and action for action in actions) else None


def make_behaviour(
    name: str, task: Task, seed: int, solutions: Mapping[str, Sequence[str]], actions: Sequence[str]
) -> Behaviour:
    """Return a behaviour policy for one episode.

    Args:
        solutions: task id -> recorded actions.
        actions: what random play draws from, where the world lists no actions.

    Raises:
        EnvironmentFailure: there is none of that name, or it needs the solution of a task that has none.
    """
    if name not in BEHAVIOURS:
        raise EnvironmentFailure(
            f"There is no behaviour policy {name!r}.", f"Expected one of {', '.join(BEHAVIOURS)}."
        )
    rng = random.Random(f"{name}/{task.id}/{seed}")
    if name == "random":
        return lambda trajectory, admissible: ("", _random_action(admissible or actions, rng))
    if task.id not in solutions:
        raise EnvironmentFailure(
            f"The behaviour {name} needs a solution of {task.id}, and none is recorded.",
            "Expected one in the file that `demonstrations` names.",
            "Record one, lower data.train_tasks and data.fidelity_tasks to what is recorded "
            f"({len(solutions)}), or set data.{name}=0.",
        )
    return _SolutionReplay(list(solutions[task.id]), name, rng, actions).act


class _SolutionReplay:
    """A recorded solution, altered as the behaviour `name` asks."""

    def __init__(self, solution: list[str], name: str, rng: random.Random, actions: Sequence[str]) -> None:
        self._solution = solution
        self._name = name
        self._rng = rng
        self._actions = actions
        self._place = 0
        self._replaced_place = rng.randrange(len(solution)) if name == "near_miss" else -1

    def act(self, trajectory: Trajectory, admissible: Sequence[str]) -> tuple[str, str]:
        """Return (no thought, the next action); at the end of the solution its last one again."""
        action = self._solution[self._place]
        others = [other for other in admissible or self._actions if other != action]
        if self._name == "noisy" and self._rng.random() < 0.3:
            return "", _random_action(others, self._rng)
        is_replaced = self._place == self._replaced_place
        self._place = min(self._place + 1, len(self._solution) - 1)
        if is_replaced:
            self._replaced_place = -1
            return "", _random_action(others, self._rng)
        return "", action


def _random_action(actions: Sequence[str], rng: random.Random) -> str:
    """Return one of `actions`; one time in ten, or where there are none, words that are no command."""
    if actions and rng.random() < 0.9:
        return rng.choice(actions)
    words = " ".join(actions).split() or ["thing"]
    return rng.choice(_NONSENSE).replace("{}", rng.choice(words))
