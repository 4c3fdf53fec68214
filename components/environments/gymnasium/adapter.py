"""A world with Gymnasium's `reset(seed=...)` and `step(action)` as a real environment, text in and out.

    dreamgym collect environment.name=gymnasium environment.gymnasium.factory=my_worlds:make_shop

A task is a seed of `reset`: even ones are for training, odd ones are held out. The instruction is
`info["instruction"]` of `reset`, else `environment.text.instruction`. Possible actions are
`info["admissible"]`, if the world gives them. The package gymnasium itself is not needed. Each row is a world
of its own in this process: one that crashes the process takes the run with it. One that does not answer
within `environment.timeout_seconds` has failed.
"""

from __future__ import annotations

import json
import random
from typing import Any, Protocol, runtime_checkable

from components.config.worlds.environment_config import EnvironmentConfig
from components.environments.answer_timeout import AnswerTimeout
from components.environments.protocol import Behaviour, RealEnvironment, Step
from components.environments.text_world.import_path import load_named
from components.environments.text_world.plain_adapter import PlainAdapter, build_task
from components.environments.text_world.replayed_behaviours import make_behaviour, read_demonstrations
from components.environments.text_world.seed_tasks import draw_seeds
from components.environments.text_world.user_code import require_seed, users_call
from components.environments.validation_split import require_split
from components.environments.vectorized import Outcome, RowsEnvironment, plain_value
from components.errors import EnvironmentFailure
from components.records import TEST, TRAIN, VALIDATION, Task, is_text


class GymnasiumAdapter(PlainAdapter):
    """A `PlainAdapter` with tasks, worlds and behaviours of a factory's worlds."""

    name = "gymnasium"
    splits = (TRAIN, VALIDATION, TEST)

    def __init__(self, config: EnvironmentConfig) -> None:
        self.config = config
        self.settings = config.gymnasium
        self.text = config.text
        self.refusals = self.text.refusals
        self._factory = load_named(self.settings.factory, "environment.gymnasium.factory")
        self._solutions = read_demonstrations(self.text.demonstrations)
        self._timeout = AnswerTimeout(config.timeout_seconds)

    def tasks(self, split: str, count: int, seed: int) -> list[Task]:
        """Return `count` different seeds as tasks, each started once to read its first state.

        Training tasks with a recorded solution come first.

        Raises:
            EnvironmentFailure: there is no such split, or the world gives no instruction.
        """
        require_split(split, self.splits)
        rng = random.Random(f"{split}/{self.config.seed}/{seed}")
        seeds = draw_seeds(split, count, rng, self._solutions, f"{self.name}/")
        world = self._make_world()
        try:
            return [self._describe(world, number, split) for number in seeds]
        finally:
            world.close()

    def open(
        self, budget: int | None = None, *, workers: int | None = None, stock: bool = False
    ) -> RealEnvironment:
        """Open an environment with a world for each row, stepped one after the other."""
        return RowsEnvironment(self._make_world, budget, timeout=self._timeout)

    def behaviour(self, name: str, task: Task, seed: int) -> Behaviour:
        """See `replayed_behaviours.make_behaviour`."""
        return make_behaviour(name, task, seed, self._solutions, self.text.actions)

    def _describe(self, world: GymnasiumWorld, number: int, split: str) -> Task:
        with self._timeout.within(f"The world's reset(seed={number})"):
            return world.describe(number, split)

    def _make_world(self) -> GymnasiumWorld:
        with users_call(f"The factory {self.settings.factory}"):
            world = self._factory()
        return GymnasiumWorld(world, self.text.success, self.text.instruction)


@runtime_checkable
class _Closable(Protocol):
    """A world that frees something when it is closed."""

    def close(self) -> object: ...


class GymnasiumWorld:
    """One world of the factory, as a `vectorized.World`."""

    def __init__(self, world: Any, success: float, instruction: str) -> None:
        self.admissible: tuple[str, ...] = ()
        self._world = world
        self._success = success
        self._instruction = instruction
        self._outcome = Outcome(success)

    def describe(self, number: int, split: str) -> Task:
        """Return the task of the seed `number`.

        Raises:
            EnvironmentFailure: neither the world nor the config gives an instruction.
        """
        state, info = self._reset(number)
        instruction = info.get("instruction", "") or self._instruction
        if not isinstance(instruction, str) or not instruction:
            raise EnvironmentFailure(
                "The world's reset gives no info['instruction'].",
                "Expected what is to be done.",
                "Set environment.text.instruction to it if it is always the same.",
            )
        return build_task(GymnasiumAdapter.name, str(number), split, instruction, state, seed=number)

    def begin(self, task: Task) -> str:
        """Call `reset` with the task's seed."""
        state, _ = self._reset(json.loads(task.spec)["seed"])
        return state

    def act(self, action: str) -> Step:
        """Call `step`. An end that the world calls truncated is an end like any other."""
        answer = self._world.step(action)
        if not isinstance(answer, tuple) or len(answer) != 5:
            actual = f"{len(answer)} values" if isinstance(answer, tuple) else type(answer).__name__
            raise EnvironmentFailure(
                f"The world's step gave {actual}.",
                "Expected observation, reward, terminated, truncated, info.",
            )
        state, reward, terminated, truncated, info = answer
        self._read_admissible(info)
        done = _require_truth("terminated", terminated) | _require_truth("truncated", truncated)
        return self._outcome.step(state, reward, done)

    def close(self) -> None:
        """Call the world's own `close`, if it has one."""
        if isinstance(self._world, _Closable):
            self._world.close()

    def _reset(self, number: int) -> tuple[str, dict[str, Any]]:
        require_seed(self._world)
        with users_call(f"The world's reset(seed={number})"):
            answer = self._world.reset(seed=number)
        if not isinstance(answer, tuple) or len(answer) != 2 or not is_text(answer[0]):
            raise EnvironmentFailure(
                f"The world's reset gave {answer!r:.200}.", "Expected a text and a dict."
            )
        state, info = answer
        self._outcome = Outcome(self._success)
        self._read_admissible(info)
        return state, info if isinstance(info, dict) else {}

    def _read_admissible(self, info: object) -> None:
        actions = (info.get("admissible") or ()) if isinstance(info, dict) else ()
        if not isinstance(actions, (list, tuple)):
            raise EnvironmentFailure(
                f"The world's info['admissible'] is {actions!r:.200}.", "Expected a list of actions."
            )
        self.admissible = tuple(action for action in actions if isinstance(action, str))


def _require_truth(name: str, value: object) -> bool:
    """Return a truth value of a world's step; None is False.

    Raises:
        EnvironmentFailure: it is no truth value.
    """
    plain = plain_value(value)
    if plain is not None and (not isinstance(plain, (bool, int)) or plain not in (0, 1)):
        raise EnvironmentFailure(f"The world's step gave {name}={value!r:.200}.", "Expected true or false.")
    return bool(plain)
