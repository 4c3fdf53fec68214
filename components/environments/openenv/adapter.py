"""A world behind an OpenEnv server as a real environment; its observations and actions are text.

    dreamgym collect environment.name=openenv environment.openenv.url=http://localhost:8000
    environment.openenv.state_field=text

A task is one that the server lists, begun by its split and index, or a seed of its `reset`. Each row is a
session of its own, at most `environment.openenv.sessions` of them; `environment.workers` of them are asked at
the same time.
"""

from __future__ import annotations

import json
import os
import random
from collections import Counter
from typing import Any

from components.config.worlds.environment_config import EnvironmentConfig
from components.config.worlds.own_world_config import OpenEnvConfig
from components.environments.openenv.client import OpenEnvSession, list_tasks
from components.environments.protocol import Behaviour, Environment, Step
from components.environments.text_world.plain_adapter import PlainAdapter, task_of
from components.environments.text_world.replayed_behaviours import make_behaviour, read_demonstrations
from components.environments.text_world.seed_tasks import SEEDS, draw_seeds
from components.environments.validation_split import require_split
from components.environments.vectorized import Outcome, RowsEnvironment
from components.errors import EnvironmentFailure
from components.records import TEST, TRAIN, VALIDATION, Task, is_text

_Chosen = tuple[str, dict[str, Any], dict[str, Any]]
"""A task's name, what `reset` is sent, and what the server says of it."""


class OpenEnvAdapter(PlainAdapter):
    """What `PlainAdapter` knows, with tasks, worlds and behaviours of a server's sessions."""

    name, splits = "openenv", (TRAIN, VALIDATION, TEST)

    def __init__(self, config: EnvironmentConfig) -> None:
        self.config, self.settings = config, config.openenv
        self.refusals = self.settings.refusals
        self._solutions = read_demonstrations(self.settings.demonstrations)
        self._headers = _authorization(self.settings.token_variable)

    def tasks(self, split: str, count: int, seed: int) -> list[Task]:
        """`count` different tasks, each begun once to see its first state; training tasks with a recorded
        solution come first.

        Raises:
            EnvironmentFailure: there is no such split, the server lists fewer, cannot be asked, or does not
                say what is to be done.
        """
        require_split(split, self.splits)
        rng = random.Random(f"{split}/{self.config.seed}/{seed}")
        chosen = (
            self._listed(split, count, rng)
            if self.settings.tasks == "api"
            else self._seeded(split, count, rng)
        )
        session = self._session()
        try:
            return [self._described(session, split, name, wishes, told) for name, wishes, told in chosen]
        finally:
            session.close()

    def _listed(self, split: str, count: int, rng: random.Random) -> list[_Chosen]:
        own = {TRAIN: self.settings.train_split, VALIDATION: self.settings.validation_split}.get(split)
        theirs = own or self.settings.test_split
        told = list_tasks(self.settings.url, self._headers, theirs, self.settings.timeout_seconds)
        shared = self.settings.train_split == self.settings.test_split == theirs
        places = range(int(split != TRAIN), len(told), 2) if shared else range(len(told))
        if len(places) < count:
            found = f"{self.settings.url} has {len(places)} tasks of {split}."
            cure = "Lower data.train_tasks, data.fidelity_tasks or evaluation.tasks."
            raise EnvironmentFailure(found, f"Expected at least {count}.", cure)
        names = {place: f"{theirs}/{_id_of(told[place], place)}" for place in places}
        if len(set(names.values())) < len(names):
            twice = next(name for name, times in Counter(names.values()).items() if times > 1)
            raise EnvironmentFailure(
                f"{self.settings.url} lists two tasks of the id {twice}.",
                "Expected an id for each, or none at all.",
            )
        solved = [place for place in places if f"{self.name}/{names[place]}" in self._solutions]
        others = [place for place in places if place not in set(solved)]
        drawn = rng.sample(solved, len(solved)) + rng.sample(others, len(others))
        return [
            (names[place], {"split": theirs, "index": place, "seed": _seed_of(names[place])}, told[place])
            for place in drawn[:count]
        ]

    def _seeded(self, split: str, count: int, rng: random.Random) -> list[_Chosen]:
        chosen = draw_seeds(split, count, rng, self._solutions, f"{self.name}/seed/")
        return [(f"seed/{number}", {"seed": number}, {}) for number in chosen]

    def _described(
        self, session: OpenEnvSession, split: str, name: str, wishes: dict[str, Any], told: dict[str, Any]
    ) -> Task:
        """The task, begun once."""
        data = session.reset(wishes)
        field = self.settings.instruction_field
        instruction = (
            data["observation"].get(field) or told.get(field) if field else ""
        ) or self.settings.instruction
        if not isinstance(instruction, str) or not instruction:
            raise EnvironmentFailure(
                f"{self.settings.url} does not say what is to be done: its first observation has "
                f"{', '.join(data['observation'])}.",
                "Expected the field that environment.openenv.instruction_field names.",
                "Name another field, or set environment.openenv.instruction if it is always the same.",
            )
        return task_of(
            self.name, name, split, instruction, state_in(data, self.settings.state_field), reset=wishes
        )

    def open(
        self, budget: int | None = None, *, workers: int | None = None, stock: bool = False
    ) -> Environment:
        """A session for each row; `workers` of them are asked at the same time."""
        parallel, most = workers or self.config.workers, self.settings.sessions
        return RowsEnvironment(
            lambda: OpenEnvWorld(self._session(), self.settings), budget, parallel=parallel, most_rows=most
        )

    def behaviour(self, name: str, task: Task, seed: int) -> Behaviour:
        """See `replayed.make_behaviour`."""
        return make_behaviour(name, task, seed, self._solutions, self.settings.actions)

    def _session(self) -> OpenEnvSession:
        return OpenEnvSession(self.settings.url, self._headers, self.settings.timeout_seconds)


class OpenEnvWorld:
    """One session (`components.environments.vectorized.World`)."""

    def __init__(self, session: OpenEnvSession, settings: OpenEnvConfig) -> None:
        self._session, self._settings = session, settings
        self._outcome = Outcome(settings.success)
        self.admissible: tuple[str, ...] = ()

    def begin(self, task: Task) -> str:
        """`reset` as the task was begun when it was listed."""
        self._outcome = Outcome(self._settings.success)
        data = self._session.reset(json.loads(task.spec)["reset"])
        self._note(data)
        return state_in(data, self._settings.state_field)

    def act(self, action: str) -> Step:
        """`step`. What the server itself calls failed is a failure of the world."""
        data = self._session.step({self._settings.action_field: action})
        self._note(data)
        if failed := _metadata(data).get("failed"):
            raise EnvironmentFailure(
                f"{self._settings.url} says that the episode has failed: {failed!s:.500}."
            )
        return self._outcome.step(
            state_in(data, self._settings.state_field), data.get("reward"), data.get("done", False)
        )

    def close(self) -> None:
        """End the session."""
        self._session.close()

    def _note(self, data: dict[str, Any]) -> None:
        told = _metadata(data).get("admissible", ())
        self.admissible = (
            tuple(action for action in told if isinstance(action, str)) if isinstance(told, list) else ()
        )


def state_in(data: dict[str, Any], field: str) -> str:
    """The text that the agent sees. Raises EnvironmentFailure if the observation has no such field, or no
    words in it.
    """
    found = data["observation"].get(field)
    if not is_text(found):
        raise EnvironmentFailure(
            f"The observation's {field!r} is {found!r:.200}; its fields are "
            f"{', '.join(data['observation']) or 'none'}.",
            "Expected words.",
            "Set environment.openenv.state_field to the field with the text.",
        )
    return str(found)


def _id_of(told: dict[str, Any], place: int) -> object:
    """What the server calls a task; its place in the list where it has no name."""
    return place if told.get("id") in (None, "") else told["id"]


def _seed_of(name: str) -> int:
    """A seed of the task's own: where the server has chances, they fall alike at every start."""
    return random.Random(name).randrange(SEEDS)


def _metadata(data: dict[str, Any]) -> dict[str, Any]:
    told = data.get("metadata") or data["observation"].get("metadata")
    return told if isinstance(told, dict) else {}


def _authorization(variable: str) -> dict[str, str]:
    if not variable:
        return {}
    token = os.environ.get(variable, "").strip()
    if not token:
        found = f"The environment variable {variable} is not set."
        raise EnvironmentFailure(
            found, "environment.openenv.token_variable names it.", f"export {variable}=..."
        )
    if not (token.isascii() and token.isprintable()):
        found = f"The environment variable {variable} holds no token: it has signs that no header can carry."
        raise EnvironmentFailure(found, "Expected printable ASCII.", f"export {variable}=...")
    return {"Authorization": f"Bearer {token}"}
