"""Behaviour policies for a world that nobody knows: recorded solutions played again, spoilt, or actions at
random.

| policy | what it does |
|---|---|
| `expert` | plays the recorded solution of the task |
| `noisy` | the same, but three times in ten another action comes in between |
| `near_miss` | the same with one action replaced by another, so that most of it is right and the end often is
not | | `random` | any action that the world lists, else one of `actions`; one in ten is no command at all |
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
    """Task id -> actions, from a file of JSON lines; empty where `path` is.

    Raises:
        DataError: the file is missing, or a line is not of that form; the line is named.
    """
    if not path:
        return {}
    found: dict[str, list[str]] = {}
    try:
        lines = Path(path).read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(
            f"The demonstrations {path} cannot be read: {error}", "Expected a file of JSON lines."
        ) from None
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            entry = parse_json(line)
            task, actions = entry["task"], entry["actions"]
            right = (
                isinstance(task, str)
                and isinstance(actions, list)
                and actions
                and all(isinstance(a, str) and a for a in actions)
            )
        except (ValueError, KeyError, TypeError):
            right = False
        if not right:
            expected = 'Expected {"task": "an id", "actions": ["first", "second"]}.'
            raise DataError(f"Line {number} of {path} is {line[:80]!r}.", expected)
        if task in found:
            again = f"Line {number} of {path} has the task {task!r}, which an earlier line has already."
            raise DataError(again, "Expected one line for each task.", "Leave one of them out.")
        found[task] = actions
    return found


def make_behaviour(
    name: str, task: Task, seed: int, solutions: Mapping[str, Sequence[str]], actions: Sequence[str]
) -> Behaviour:
    """A behaviour policy, fresh for one episode.

    Raises:
        EnvironmentFailure: there is none of that name, or it needs the solution of a task that has none.
    """
    if name not in BEHAVIOURS:
        raise EnvironmentFailure(
            f"There is no behaviour policy {name!r}.", f"Expected one of {', '.join(BEHAVIOURS)}."
        )
    rng = random.Random(f"{name}/{task.id}/{seed}")
    if name == "random":
        return lambda trajectory, admissible: ("", _any(admissible or actions, rng))
    if task.id not in solutions:
        raise EnvironmentFailure(
            f"The behaviour {name} needs a solution of {task.id}, and none is recorded.",
            "Expected one in the file that `demonstrations` names.",
            "Record one, lower data.train_tasks and data.fidelity_tasks to what is recorded "
            f"({len(solutions)}), or set data.{name}=0.",
        )
    return _Replay(list(solutions[task.id]), name, rng, actions).act


class _Replay:
    """A recorded solution, played as `name` says."""

    def __init__(self, solution: list[str], name: str, rng: random.Random, actions: Sequence[str]) -> None:
        self._solution, self._name, self._rng, self._actions = solution, name, rng, actions
        self._place, self._spoilt = 0, rng.randrange(len(solution)) if name == "near_miss" else -1

    def act(self, trajectory: Trajectory, admissible: Sequence[str]) -> tuple[str, str]:
        """(no thought, the next action); at the end of the solution its last one again."""
        others = [action for action in admissible or self._actions if action != self._solution[self._place]]
        if self._name == "noisy" and self._rng.random() < 0.3:
            return "", _any(others, self._rng)
        wanted, spoil = self._solution[self._place], self._place == self._spoilt
        self._place, self._spoilt = (
            min(self._place + 1, len(self._solution) - 1),
            -1 if spoil else self._spoilt,
        )
        return "", _any(others, self._rng) if spoil else wanted


def _any(actions: Sequence[str], rng: random.Random) -> str:
    """One of `actions`; one time in ten, or where there are none, words that are no command."""
    if actions and rng.random() < 0.9:
        return rng.choice(actions)
    words = " ".join(actions).split() or ["thing"]
    return rng.choice(_NONSENSE).replace("{}", rng.choice(words))
