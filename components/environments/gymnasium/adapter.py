"""A world with Gymnasium's `reset(seed=...)` and `step(action)` as a real environment; its observations and
actions are text.

    dreamgym collect environment.name=gymnasium environment.gymnasium.factory=my_worlds:make_shop

A task is a seed of `reset`: even ones train, odd ones are held out. What is to be done is
`info["instruction"]` of `reset`, else `environment.gymnasium.instruction`; possible actions are
`info["admissible"]`, where the world tells them. The package gymnasium itself is not needed. Each row is a
world of its own in this process: one that crashes the process or never answers takes the run with it.
"""

from __future__ import annotations

import json
import random
from typing import Any

from components.config.worlds.environment_config import EnvironmentConfig
from components.environments.protocol import Behaviour, Environment, Step
from components.environments.text_world.import_path import load_named
from components.environments.text_world.plain_adapter import PlainAdapter, task_of
from components.environments.text_world.replayed_behaviours import make_behaviour, read_demonstrations
from components.environments.text_world.seed_tasks import draw_seeds
from components.environments.text_world.user_code import require_seed, users_call
from components.environments.validation_split import require_split
from components.environments.vectorized import Outcome, RowsEnvironment, plain_value
from components.errors import EnvironmentFailure
from components.records import TEST, TRAIN, VALIDATION, Task, is_text


class GymnasiumAdapter(PlainAdapter):
    """What `PlainAdapter` knows, with tasks, worlds and behaviours of a factory's worlds."""

    name, splits = "gymnasium", (TRAIN, VALIDATION, TEST)

    def __init__(self, config: EnvironmentConfig) -> None:
        self.config, self.settings = config, config.gymnasium
        self.refusals = self.settings.refusals
        self._factory = load_named(self.settings.factory, "environment.gymnasium.factory")
        self._solutions = read_demonstrations(self.settings.demonstrations)

    def tasks(self, split: str, count: int, seed: int) -> list[Task]:
        """`count` different seeds, each begun once to see its first state; training tasks with a recorded
        solution come first.

        Raises:
            EnvironmentFailure: there is no such split, or the world does not say what is to be done.
        """
        require_split(split, self.splits)
        rng = random.Random(f"{split}/{self.config.seed}/{seed}")
        chosen = draw_seeds(split, count, rng, self._solutions, f"{self.name}/")
        world = self._make()
        try:
            return [world.describe(number, split) for number in chosen]
        finally:
            world.close()

    def open(
        self, budget: int | None = None, *, workers: int | None = None, stock: bool = False
    ) -> Environment:
        """A world for each row, stepped one after the other."""
        return RowsEnvironment(self._make, budget)

    def behaviour(self, name: str, task: Task, seed: int) -> Behaviour:
        """See `replayed.make_behaviour`."""
        return make_behaviour(name, task, seed, self._solutions, self.settings.actions)

    def _make(self) -> GymnasiumWorld:
        with users_call(f"The factory {self.settings.factory}"):
            made = self._factory()
        return GymnasiumWorld(made, self.settings.success, self.settings.instruction)


class GymnasiumWorld:
    """One world of the factory's (`components.environments.vectorized.World`)."""

    def __init__(self, made: Any, success: float, instruction: str) -> None:
        self._made, self._success, self._instruction = made, success, instruction
        self._outcome = Outcome(success)
        self.admissible: tuple[str, ...] = ()

    def describe(self, number: int, split: str) -> Task:
        """The task of that seed. Raises EnvironmentFailure if nobody says what is to be done."""
        state, info = self._reset(number)
        instruction = info.get("instruction", "") or self._instruction
        if not isinstance(instruction, str) or not instruction:
            raise EnvironmentFailure(
                "The world's reset gives no info['instruction'].",
                "Expected what is to be done.",
                "Set environment.gymnasium.instruction to it if it is always the same.",
            )
        return task_of(GymnasiumAdapter.name, str(number), split, instruction, state, seed=number)

    def begin(self, task: Task) -> str:
        """`reset` with the task's seed."""
        state, _ = self._reset(json.loads(task.spec)["seed"])
        return state

    def act(self, action: str) -> Step:
        """`step`. An end that the world calls truncated is an end like any other."""
        answer = self._made.step(action)
        if not isinstance(answer, tuple) or len(answer) != 5:
            found = f"{len(answer)} values" if isinstance(answer, tuple) else type(answer).__name__
            raise EnvironmentFailure(
                f"The world's step gave {found}.",
                "Expected observation, reward, terminated, truncated, info.",
            )
        state, reward, terminated, truncated, info = answer
        self._note(info)
        done = _truth("terminated", terminated) | _truth("truncated", truncated)
        return self._outcome.step(state, reward, done)

    def close(self) -> None:
        """The world's own `close`, if it has one."""
        if hasattr(self._made, "close"):
            self._made.close()

    def _reset(self, number: int) -> tuple[str, dict[str, Any]]:
        require_seed(self._made)
        with users_call(f"The world's reset(seed={number})"):
            answer = self._made.reset(seed=number)
        if not isinstance(answer, tuple) or len(answer) != 2 or not is_text(answer[0]):
            raise EnvironmentFailure(
                f"The world's reset gave {answer!r:.200}.", "Expected a text and a dict."
            )
        self._outcome = Outcome(self._success)
        self._note(answer[1])
        return answer[0], answer[1] if isinstance(answer[1], dict) else {}

    def _note(self, info: object) -> None:
        told = (info.get("admissible") or ()) if isinstance(info, dict) else ()
        if not isinstance(told, (list, tuple)):
            raise EnvironmentFailure(
                f"The world's info['admissible'] is {told!r:.200}.", "Expected a list of actions."
            )
        self.admissible = tuple(action for action in told if isinstance(action, str))


def _truth(name: str, value: object) -> bool:
    """What a world's step says of its end. Raises EnvironmentFailure if that is no truth value; None is
    false.
    """
    plain = plain_value(value)
    if plain is not None and (not isinstance(plain, (bool, int)) or plain not in (0, 1)):
        raise EnvironmentFailure(f"The world's step gave {name}={value!r:.200}.", "Expected true or false.")
    return bool(plain)
