"""A real environment made of rows: one world an episode, each stepped by itself, with the budget and the
failures of all of them.

Whoever has a world that plays one episode has an environment: it needs `begin`, `act` and `close` (`World`).
What breaks in it is recorded (`info["failed"]`), never held against the agent: an exception, an answer that
is no text, an episode that begins otherwise than recorded. The broken world is closed, and a new one is made
for the next episode.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from numbers import Real
from typing import Any, Protocol

from components.environments.budget import spend
from components.environments.protocol import Step
from components.errors import EnvironmentFailure
from components.records import Task, is_text


class World(Protocol):
    """A world that plays one episode at a time. What it raises is a failure of the world."""

    @property
    def admissible(self) -> Sequence[str]:
        """Actions that it says are possible now; empty where it says nothing."""
        ...

    def begin(self, task: Task) -> str:
        """Start the task's episode; the initial state, the same for the same task."""
        ...

    def act(self, action: str) -> Step:
        """One step. An action that is impossible or nonsense is answered with a state that says so, not
        raised.
        """
        ...

    def close(self) -> None:
        """Free what it holds."""
        ...


class Outcome:
    """An episode's own rewards, made into the pipeline's: 1 at an end where their sum is at least `success`,
    else 0.
    """

    def __init__(self, success: float) -> None:
        self.total, self._success = 0.0, success

    def step(self, state: object, reward: object, done: object, **info: Any) -> Step:
        """What the world answered as a step. Raises EnvironmentFailure if that is no text, no number, or no
        truth value.
        """
        if not is_text(state):
            raise EnvironmentFailure(f"The world answered {_shown(state)}.", "Expected a state of words.")
        reward, done = plain_value(0.0 if reward is None else reward), plain_value(done)
        if not isinstance(reward, Real) or not math.isfinite(reward):
            raise EnvironmentFailure(f"The world gave the reward {_shown(reward)}.", "Expected a number.")
        if not isinstance(done, (bool, int, float)) or done not in (True, False):
            raise EnvironmentFailure(
                f"The world answered {_shown(done)} to whether the episode is over.",
                "Expected true or false.",
            )
        self.total += float(reward)
        won = bool(done) and self.total >= self._success - 1e-9
        return Step(
            str(state), float(won), bool(done), {"observation": state, "world_reward": float(reward), **info}
        )


class RowsEnvironment:
    """`components.environments.protocol.Environment` over worlds; `admissible` holds what each row may do
    now, as its world says.
    """

    def __init__(
        self,
        make: Callable[[], World],
        budget: int | None = None,
        *,
        parallel: int = 1,
        most_rows: int | None = None,
    ) -> None:
        """Args:
        make: makes a world for one row.
        budget: interactions that may not be exceeded; None: any number.
        parallel: rows that are asked at the same time, by threads: for worlds that wait for something else.
        most_rows: how many worlds there can be at once; None: any number.
        """
        self.interactions, self.budget, self.most_rows = 0, budget, most_rows
        self.admissible: list[Sequence[str]] = []
        self._make, self._pool = make, ThreadPoolExecutor(parallel) if parallel > 1 else None
        self._worlds: list[World | None] = []
        self._states: list[str] = []
        self._broken: dict[int, str] = {}

    def reset(self, tasks: Sequence[Task]) -> list[str]:
        """Start one episode a task. A row whose world does not start has failed: its first step says so.

        Raises:
            EnvironmentFailure: a task was made up and has no world of its own, or of several worlds none
                starts.
        """
        for task in tasks:
            if task.generated:
                found = f"The task {task.id} was generated: it has no real world."
                raise EnvironmentFailure(found, next_step="Embody a dreamed episode of it.")
        for row in range(len(tasks), len(self._worlds)):
            self._discard(row)
        self._worlds = [*self._worlds, *[None] * len(tasks)][: len(tasks)]
        self._states, self.admissible, self._broken = (
            [task.initial_state for task in tasks],
            [()] * len(tasks),
            {},
        )
        reasons = self._each(lambda row: self._begin(row, tasks[row]), range(len(tasks)))
        self._broken = {row: reason for row, reason in enumerate(reasons) if reason}
        if 1 < len(tasks) == len(self._broken):
            raise EnvironmentFailure(f"No episode of {len(tasks)} could be started: {self._broken[0]}")
        return list(self._states)

    def step(self, actions: Sequence[str | None]) -> list[Step | None]:
        """One step for each row with an action. One that is broken already takes none, and costs none.

        Raises:
            EnvironmentFailure: the budget of interactions does not allow these steps.
        """
        asked = [row for row, action in enumerate(actions) if action is not None]
        taken = sum(row not in self._broken and self._worlds[row] is not None for row in asked)
        self.interactions = spend(self.interactions, taken, self.budget)
        steps: list[Step | None] = [None] * len(actions)
        for row, step in zip(
            asked, self._each(lambda row: self._act(row, actions[row] or ""), asked), strict=True
        ):
            steps[row] = step
        return steps

    def close(self) -> None:
        """Close all worlds."""
        for row in range(len(self._worlds)):
            self._discard(row)
        if self._pool is not None:
            self._pool.shutdown()

    def _each(self, work: Callable[[int], Any], rows: Sequence[int]) -> list[Any]:
        return list((self._pool.map if self._pool else map)(work, rows))

    def _begin(self, row: int, task: Task) -> str:
        """Why the row's episode could not be started; "" if it was. A world left from an earlier one may have
        died: a new one is tried.
        """
        left = self._worlds[row] is not None
        reason = self._start(row, task)
        return self._start(row, task) if reason and left else reason

    def _start(self, row: int, task: Task) -> str:
        try:
            world = self._worlds[row] = self._worlds[row] or self._make()
            state = world.begin(task)
            if state != task.initial_state:
                raise EnvironmentFailure(
                    f"{task.id} began with {_shown(state)}, recorded was {_shown(task.initial_state)}.",
                    "Expected the same state at every start of a task.",
                )
            self.admissible[row] = tuple(world.admissible)
            return ""
        except (Exception, SystemExit) as error:  # whatever it is, it is the world's and not the agent's
            self._discard(row)
            return _error_text(error)

    def _act(self, row: int, action: str) -> Step:
        world = self._worlds[row]
        try:
            if row in self._broken or world is None:
                raise EnvironmentFailure(self._broken.get(row, "This episode has failed before."))
            step = _sound(world.act(action))
            self._states[row], self.admissible[row] = step.state, tuple(world.admissible)
            return Step(step.state, step.reward, step.done, {"admissible": self.admissible[row], **step.info})
        except (Exception, SystemExit) as error:  # recorded, and the next episode gets a new world
            self._discard(row)
            self._broken[row] = _error_text(error)
            return Step(self._states[row], 0.0, True, {"failed": self._broken[row]})

    def _discard(self, row: int) -> None:
        world, self._worlds[row] = self._worlds[row], None
        if world is not None:
            with suppress(Exception):
                world.close()


def plain_value(value: object) -> object:
    """Python's own number or truth value in place of an array or tensor that holds one alone, as NumPy and
    torch give them.
    """
    return value.item() if getattr(value, "shape", None) == () and hasattr(value, "item") else value


def _sound(step: object) -> Step:
    """A world's answer, its reward and end as plain values. Raises EnvironmentFailure if it is none that the
    pipeline can use.
    """
    if not isinstance(step, Step):
        raise EnvironmentFailure(
            f"The world's act gave {_shown(step)}.", "Expected a Step (components/environments/protocol.py)."
        )
    if not is_text(step.state):
        raise EnvironmentFailure(f"The world answered {_shown(step.state)}.", "Expected a state of words.")
    reward, done = plain_value(step.reward), plain_value(step.done)
    if not isinstance(done, (bool, int, float)) or done not in (0, 1):
        raise EnvironmentFailure(f"The world's act gave done={_shown(done)}.", "Expected true or false.")
    if not isinstance(reward, (bool, int, float)) or reward not in (0, 1) or reward > done:
        found = f"The world's act gave reward={_shown(reward)}, done={bool(done)}."
        raise EnvironmentFailure(found, "Expected the reward 1.0 at the end of a success, else 0.0.")
    return replace(step, reward=float(reward), done=bool(done))


def _error_text(error: BaseException) -> str:
    return (
        str(error)
        if isinstance(error, EnvironmentFailure)
        else f"{type(error).__name__}: {error}".removesuffix(": ")
    )


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 200 else f"{text[:200]}... ({len(text):,} characters)"
