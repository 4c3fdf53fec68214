"""The base of an adapter for a world that is written in Python and can list its tasks.

Its heir gives a world class, the specifications of all tasks of a split, and, if there is one, an expert.
What follows from them is here: drawing tasks, opening rows of worlds, and behaviours that leave the expert's
way. `components/environments/template.py` is an example to copy.
"""

from __future__ import annotations

import json
import random
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from components.config.worlds.environment_config import EnvironmentConfig
from components.environments.answer_timeout import AnswerTimeout
from components.environments.protocol import Behaviour, RealEnvironment, Step
from components.environments.text_world.plain_adapter import PlainAdapter, build_task, sample_tasks
from components.environments.validation_split import require_split
from components.environments.vectorized import NO_TIMEOUT, RowsEnvironment
from components.errors import EnvironmentFailure
from components.records import TEST, TRAIN, Task, Trajectory

ERROR_RATES = {"expert": 0.0, "noisy": 0.2, "near_miss": 0.5, "random": 1.0}
"""Default of `PythonWorldAdapter.error_rates`."""


@dataclass(frozen=True)
class TaskSpec:
    """One task: its name, its instruction, and the plain values that the world starts it from.

    An empty instruction is the one that the world has after its start. Success is also reported by `family`,
    the kind of task, if it is named.
    """

    name: str
    instruction: str
    values: Mapping[str, Any]
    family: str = ""


class PythonWorld(ABC):
    """One episode at a time. What it raises counts as a failure of the world, never as the agent's."""

    admissible: Sequence[str] = ()
    """The actions that are possible now; empty if the world does not say."""
    instruction: str = ""
    """What is to be done, if the world tells it at the start."""

    def begin(self, task: Task) -> str:
        """Start the episode of `task` and return the initial state."""
        return self.start(**json.loads(task.spec))

    start: Callable[..., str]
    """The heir's: start an episode from the values of its `TaskSpec` and `instruction`, given by name.

    Returns the initial state, the same for the same values.
    """

    @abstractmethod
    def act(self, action: str) -> Step:
        """Take one step. Answer an impossible or senseless action with a state that says so."""

    def close(self) -> None:  # noqa: B027
        """Free what it holds; a world that holds nothing leaves this out."""


class PythonWorldAdapter(PlainAdapter):
    """An adapter of `world`; the heir writes `specs`, and `expert` and `mistakes` where it can."""

    name = "own"
    world: ClassVar[type[PythonWorld]]
    splits: Sequence[str] = (TRAIN, TEST)
    error_rates: Mapping[str, float] = ERROR_RATES
    """Behaviour -> the share of steps in which it leaves the expert's way."""
    most_rows: ClassVar[int | None] = None
    """The largest number of worlds at the same time, for worlds that are processes; None: any number."""
    answer_timeout: AnswerTimeout = NO_TIMEOUT
    """Of the time of one answer of a world."""

    def __init__(self, config: EnvironmentConfig) -> None:
        self.seed = config.seed
        self.answer_timeout = AnswerTimeout(config.timeout_seconds)

    @abstractmethod
    def specs(self, split: str) -> list[TaskSpec]:
        """Return all tasks of a split, in the same order each time."""

    def expert(self, task: Task, trajectory: Trajectory) -> str:
        """Return the best action after `trajectory`, from what the agent has seen.

        Raises:
            EnvironmentFailure: the world has no expert; then only `random` plays.
        """
        raise EnvironmentFailure("This world has no expert.", "Expected one for this behaviour.")

    def mistakes(self, task: Task, rng: random.Random) -> list[str]:
        """Return actions that are impossible or senseless in the task."""
        return ["?"]

    def tasks(self, split: str, count: int, seed: int) -> list[Task]:
        """Return `count` different tasks of a split."""
        require_split(split, self.splits)
        rng = random.Random(f"{split}/{self.seed}/{seed}")
        return [self._task(split, spec) for spec in sample_tasks(rng, self.specs(split), count, split)]

    def _task(self, split: str, spec: TaskSpec) -> Task:
        task = build_task(self.name, spec.name, split, spec.instruction, "", **spec.values)
        world = self.world()
        try:
            with self.answer_timeout.within(f"The start of {task.id}"):
                initial_state = world.begin(task)
            instruction = spec.instruction or world.instruction
        finally:
            world.close()
        if not instruction:
            raise EnvironmentFailure(
                f"The task {spec.name} has no instruction.",
                "Expected one in its TaskSpec, or world.instruction after the start.",
            )
        task = build_task(self.name, spec.name, split, instruction, initial_state, **spec.values)
        return replace(task, family=spec.family)

    def open(
        self, budget: int | None = None, *, workers: int | None = None, stock: bool = False
    ) -> RealEnvironment:
        """Open an environment with a world for each row."""
        return RowsEnvironment(self.world, budget, most_rows=self.most_rows, timeout=self.answer_timeout)

    def behaviour(self, name: str, task: Task, seed: int) -> Behaviour:
        """Return the expert, or a behaviour that leaves its way more or less often."""
        if name not in self.error_rates:
            raise EnvironmentFailure(
                f"There is no behaviour policy {name!r}.", f"Expected one of {', '.join(self.error_rates)}."
            )
        rng = random.Random(f"{name}/{task.id}/{seed}")
        mistakes = self.mistakes(task, rng)

        def act(trajectory: Trajectory, admissible: Sequence[str]) -> tuple[str, str]:
            others = mistakes if name == "near_miss" else [*admissible, *mistakes]
            is_error = rng.random() < self.error_rates[name]
            return "", rng.choice(others) if is_error else self.expert(task, trajectory)

        return act
