"""A world behind an OpenEnv server as a real environment, text in and out.

    dreamgym collect environment.name=openenv environment.openenv.url=http://localhost:8000
        environment.openenv.state_field=text

A task is one that the server lists, started by its split and index, or a seed of its `reset`. Each row is a
session of its own, at most `environment.openenv.sessions` of them; `environment.workers` of them are asked at
the same time.
"""

from __future__ import annotations

import json
import os
import random
from collections import Counter
from typing import Any, NamedTuple

from components.config.worlds.environment_config import EnvironmentConfig
from components.config.worlds.own_world_config import OpenEnvConfig
from components.environments.openenv.client import OpenEnvSession, list_tasks
from components.environments.protocol import Behaviour, RealEnvironment, Step
from components.environments.text_world.plain_adapter import FEWER_TASKS, PlainAdapter, build_task
from components.environments.text_world.replayed_behaviours import make_behaviour, read_demonstrations
from components.environments.text_world.seed_tasks import SEEDS, draw_seeds
from components.environments.validation_split import require_split
from components.environments.vectorized import Outcome, RowsEnvironment
from components.errors import EnvironmentFailure
from components.records import TEST, TRAIN, VALIDATION, Task, is_text


class _TaskChoice(NamedTuple):
    """A task to list."""

    name: str
    reset_options: dict[str, Any]
    """What `reset` is sent."""
    description: dict[str, Any]
    """What the server says of the task."""


class OpenEnvAdapter(PlainAdapter):
    """A `PlainAdapter` with tasks, worlds and behaviours of a server's sessions."""

    name = "openenv"

    def __init__(self, config: EnvironmentConfig) -> None:
        self.config = config
        self.settings = config.openenv
        self.text = config.text
        self.refusals = self.text.refusals
        has_own_validation = self.settings.tasks == "seeds" or bool(self.settings.validation_split)
        self.splits = (TRAIN, VALIDATION, TEST) if has_own_validation else (TRAIN, TEST)
        self._solutions = read_demonstrations(self.text.demonstrations)
        self._headers = _authorization(self.settings.token_variable)

    def tasks(self, split: str, count: int, seed: int) -> list[Task]:
        """Return `count` different tasks, each started once to read its first state.

        Training tasks with a recorded solution come first.

        Raises:
            EnvironmentFailure: there is no such split, the server lists fewer, cannot be asked, or gives no
                instruction.
        """
        require_split(split, self.splits)
        rng = random.Random(f"{split}/{self.config.seed}/{seed}")
        is_listed = self.settings.tasks == "api"
        choices = (
            self._choose_listed(split, count, rng) if is_listed else self._choose_seeds(split, count, rng)
        )
        session = self._open_session()
        try:
            return [self._start_once(session, split, choice) for choice in choices]
        finally:
            session.close()

    def _choose_listed(self, split: str, count: int, rng: random.Random) -> list[_TaskChoice]:
        """Return `count` of the tasks that the server lists for the split."""
        settings = self.settings
        own_split = {TRAIN: settings.train_split, VALIDATION: settings.validation_split}.get(split)
        server_split = own_split or settings.test_split
        listed = list_tasks(settings.url, self._headers, server_split, self.config.timeout_seconds)
        is_shared = settings.train_split == settings.test_split == server_split
        places = range(int(split != TRAIN), len(listed), 2) if is_shared else range(len(listed))
        if len(places) < count:
            raise EnvironmentFailure(
                f"{settings.url} has {len(places)} tasks of {split}.",
                f"Expected at least {count}.",
                FEWER_TASKS,
            )
        names = {place: f"{server_split}/{_id_of(listed[place], place)}" for place in places}
        self._require_different(list(names.values()))
        solved = [place for place in places if f"{self.name}/{names[place]}" in self._solutions]
        others = [place for place in places if place not in set(solved)]
        chosen_places = rng.sample(solved, len(solved)) + rng.sample(others, len(others))
        return [
            _TaskChoice(
                names[place],
                {"split": server_split, "index": place, "seed": _seed_of(names[place])},
                listed[place],
            )
            for place in chosen_places[:count]
        ]

    def _require_different(self, names: list[str]) -> None:
        if len(set(names)) < len(names):
            twice = next(name for name, times in Counter(names).items() if times > 1)
            raise EnvironmentFailure(
                f"{self.settings.url} lists two tasks of the id {twice}.",
                "Expected an id for each, or none at all.",
            )

    def _choose_seeds(self, split: str, count: int, rng: random.Random) -> list[_TaskChoice]:
        seeds = draw_seeds(split, count, rng, self._solutions, f"{self.name}/seed/")
        return [_TaskChoice(f"seed/{number}", {"seed": number}, {}) for number in seeds]

    def _start_once(self, session: OpenEnvSession, split: str, choice: _TaskChoice) -> Task:
        """Start the chosen task once, and return it with its instruction and first state.

        Raises:
            EnvironmentFailure: neither the server nor the config gives an instruction.
        """
        data = session.reset(choice.reset_options)
        observation = data["observation"]
        field = self.settings.instruction_field
        from_server = (observation.get(field) or choice.description.get(field)) if field else ""
        instruction = from_server or self.text.instruction
        if not isinstance(instruction, str) or not instruction:
            raise EnvironmentFailure(
                f"{self.settings.url} does not say what is to be done: its first observation has "
                f"{', '.join(observation)}.",
                "Expected the field that environment.openenv.instruction_field names.",
                "Name another field, or set environment.text.instruction if it is always the same.",
            )
        state = state_in(data, self.settings.state_field)
        return build_task(self.name, choice.name, split, instruction, state, reset=choice.reset_options)

    def open(
        self, budget: int | None = None, *, workers: int | None = None, stock: bool = False
    ) -> RealEnvironment:
        """Open an environment with a session for each row; `workers` of them are asked at the same time."""
        return RowsEnvironment(
            lambda: OpenEnvWorld(self._open_session(), self.settings, self.text.success),
            budget,
            parallel=workers or self.config.workers,
            most_rows=self.settings.sessions,
        )

    def behaviour(self, name: str, task: Task, seed: int) -> Behaviour:
        """See `replayed_behaviours.make_behaviour`."""
        return make_behaviour(name, task, seed, self._solutions, self.text.actions)

    def _open_session(self) -> OpenEnvSession:
        return OpenEnvSession(self.settings.url, self._headers, self.config.timeout_seconds)


class OpenEnvWorld:
    """One session, as a `vectorized.World`."""

    def __init__(self, session: OpenEnvSession, settings: OpenEnvConfig, success: float = 1.0) -> None:
        self.admissible: tuple[str, ...] = ()
        self._session = session
        self._settings = settings
        self._success = success
        self._outcome = Outcome(success)

    def begin(self, task: Task) -> str:
        """Call `reset` with the options with which the task was listed."""
        self._outcome = Outcome(self._success)
        data = self._session.reset(json.loads(task.spec)["reset"])
        self._read_admissible(data)
        return state_in(data, self._settings.state_field)

    def act(self, action: str) -> Step:
        """Call `step`. What the server itself calls failed is a failure of the world."""
        data = self._session.step({self._settings.action_field: action})
        self._read_admissible(data)
        if failed := _metadata(data).get("failed"):
            raise EnvironmentFailure(
                f"{self._settings.url} says that the episode has failed: {failed!s:.500}."
            )
        state = state_in(data, self._settings.state_field)
        return self._outcome.step(state, data.get("reward"), data.get("done", False))

    def close(self) -> None:
        """End the session."""
        self._session.close()

    def _read_admissible(self, data: dict[str, Any]) -> None:
        actions = _metadata(data).get("admissible", ())
        is_list = isinstance(actions, list)
        self.admissible = tuple(action for action in actions if isinstance(action, str)) if is_list else ()


def state_in(data: dict[str, Any], field: str) -> str:
    """Return the text that the agent sees.

    Raises:
        EnvironmentFailure: the observation has no such field, or no words in it.
    """
    state = data["observation"].get(field)
    if not is_text(state):
        raise EnvironmentFailure(
            f"The observation's {field!r} is {state!r:.200}; its fields are "
            f"{', '.join(data['observation']) or 'none'}.",
            "Expected words.",
            "Set environment.openenv.state_field to the field with the text.",
        )
    return str(state)


def _id_of(description: dict[str, Any], place: int) -> object:
    """Return the server's id of a task; its place in the list if it has none."""
    return place if description.get("id") in (None, "") else description["id"]


def _seed_of(name: str) -> int:
    """Return a seed of the task's own, so that a server with chances starts it the same every time."""
    return random.Random(name).randrange(SEEDS)


def _metadata(data: dict[str, Any]) -> dict[str, Any]:
    metadata = data.get("metadata") or data["observation"].get("metadata")
    return metadata if isinstance(metadata, dict) else {}


def _authorization(variable: str) -> dict[str, str]:
    """Return the headers with the token that the environment variable holds; none if no variable is named."""
    if not variable:
        return {}
    token = os.environ.get(variable, "").strip()
    if not token:
        raise EnvironmentFailure(
            f"The environment variable {variable} is not set.",
            "environment.openenv.token_variable names it.",
            f"export {variable}=...",
        )
    if not (token.isascii() and token.isprintable()):
        raise EnvironmentFailure(
            f"The environment variable {variable} holds no token: a header cannot carry its characters.",
            "Expected printable ASCII.",
            f"export {variable}=...",
        )
    return {"Authorization": f"Bearer {token}"}
