"""Make a batched real environment of worlds that each play one episode.

A world needs `begin`, `act` and `close` (`World`). `RowsEnvironment` gives it the budget and the handling of
failures: an exception, an answer that is no text, an episode that begins otherwise than recorded. A failure
is recorded (`info["failed"]`) and never counted against the agent. The broken world is closed, and a new one
is made for the next episode.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from numbers import Real
from typing import Any, Protocol, TypeVar, runtime_checkable

from components.environments.answer_timeout import AnswerTimeout
from components.environments.budget import spend
from components.environments.protocol import Step
from components.errors import EnvironmentFailure
from components.records import Task, is_text

T = TypeVar("T")
NO_TIMEOUT = AnswerTimeout()
_LONGEST_SHOWN = 200
"""Characters of a value that a message shows."""


class World(Protocol):
    """A world that plays one episode at a time. What it raises is a failure of the world."""

    @property
    def admissible(self) -> Sequence[str]:
        """The actions that are possible now; empty if the world does not say."""
        ...

    def begin(self, task: Task) -> str:
        """Start the task's episode and return the initial state, the same for the same task."""
        ...

    def act(self, action: str) -> Step:
        """Take one step. Answer an impossible or senseless action with a state that says so; do not raise."""
        ...

    def close(self) -> None:
        """Free what it holds."""
        ...


class Outcome:
    """Turns the rewards of an episode into the pipeline's: 1 at an end where their sum is `success`, else
    0."""

    def __init__(self, success: float) -> None:
        self.total = 0.0
        self._success = success

    def step(self, state: object, reward: object, done: object, **info: Any) -> Step:
        """Return what the world answered as a step.

        Raises:
            EnvironmentFailure: the state is no text, the reward no number, or `done` no truth value.
        """
        if not is_text(state):
            raise EnvironmentFailure(f"The world answered {_shortened(state)}.", "Expected a state of words.")
        reward = plain_value(0.0 if reward is None else reward)
        done = plain_value(done)
        if not isinstance(reward, Real) or not math.isfinite(reward):
            raise EnvironmentFailure(f"The world gave the reward {_shortened(reward)}.", "Expected a number.")
        if not isinstance(done, (bool, int, float)) or done not in (True, False):
            raise EnvironmentFailure(
                f"The world answered {_shortened(done)} to whether the episode is over.",
                "Expected true or false.",
            )
        self.total += float(reward)
        is_success = bool(done) and self.total >= self._success - 1e-9
        all_info = {"observation": state, "world_reward": float(reward), **info}
        return Step(str(state), float(is_success), bool(done), all_info)


class RowsEnvironment:
    """A `RealEnvironment` (`protocol.py`) over one world a row."""

    def __init__(
        self,
        make: Callable[[], World],
        budget: int | None = None,
        *,
        parallel: int = 1,
        most_rows: int | None = None,
        timeout: AnswerTimeout = NO_TIMEOUT,
    ) -> None:
        """Make an environment without rows.

        Args:
            make: makes a world for one row.
            budget: interactions that may not be exceeded; None: any number.
            parallel: rows that are asked at the same time, by threads: for worlds that wait for something
                else.
            most_rows: the largest number of worlds at the same time; None: any number.
            timeout: of one answer; a world that is late has failed. Without effect with `parallel`.
        """
        self.interactions = 0
        self.budget = budget
        self.most_rows = most_rows
        self.admissible: list[Sequence[str]] = []
        self._make = make
        self._timeout = timeout
        self._pool = ThreadPoolExecutor(parallel) if parallel > 1 else None
        self._worlds: list[World | None] = []
        self._states: list[str] = []
        self._task_ids: list[str] = []
        self._broken: dict[int, str] = {}

    def reset(self, tasks: Sequence[Task]) -> list[str]:
        """Start one episode a task. A row whose world does not start has failed: its first step says so.

        Raises:
            EnvironmentFailure: a task was generated and has no world of its own, or of several worlds none
                starts.
        """
        for task in tasks:
            _refuse_generated(task)
        for row in range(len(tasks), len(self._worlds)):
            self._discard(row)
        self._worlds = [*self._worlds, *[None] * len(tasks)][: len(tasks)]
        self._states = [task.initial_state for task in tasks]
        self._task_ids = [task.id for task in tasks]
        self.admissible = [()] * len(tasks)
        self._broken = {}
        reasons = self._each(lambda row: self._begin(row, tasks[row]), range(len(tasks)))
        self._broken = {row: reason for row, reason in enumerate(reasons) if reason}
        if 1 < len(tasks) == len(self._broken):
            raise EnvironmentFailure(f"No episode of {len(tasks)} could be started: {self._broken[0]}")
        return list(self._states)

    def refill(self, row: int, task: Task) -> str:
        """Begin an episode in `row` while the others go on. If it does not start, its first step says so.

        Raises:
            EnvironmentFailure: the task was generated and has no world of its own.
        """
        _refuse_generated(task)
        self._states[row] = task.initial_state
        self._task_ids[row] = task.id
        self.admissible[row] = ()
        self._broken.pop(row, None)
        reason = self._begin(row, task)
        if reason:
            self._broken[row] = reason
        return self._states[row]

    def step(self, actions: Sequence[str | None]) -> list[Step | None]:
        """Take one step in each row with an action. A row that is broken already takes and costs none.

        Raises:
            EnvironmentFailure: the budget of interactions does not allow these steps.
        """
        rows = [row for row, action in enumerate(actions) if action is not None]
        cost = sum(row not in self._broken and self._worlds[row] is not None for row in rows)
        self.interactions = spend(self.interactions, cost, self.budget)
        answers = self._each(lambda row: self._act(row, actions[row] or ""), rows)
        steps: list[Step | None] = [None] * len(actions)
        for row, answer in zip(rows, answers, strict=True):
            steps[row] = answer
        return steps

    def close(self) -> None:
        """Close all worlds."""
        for row in range(len(self._worlds)):
            self._discard(row)
        if self._pool is not None:
            self._pool.shutdown()

    def _each(self, work: Callable[[int], T], rows: Sequence[int]) -> list[T]:
        return list((self._pool.map if self._pool else map)(work, rows))

    def _begin(self, row: int, task: Task) -> str:
        """Return why the row's episode could not be started; "" if it was.

        A world left from an earlier episode may have died, so a new one is tried as well.
        """
        is_used_world = self._worlds[row] is not None
        reason = self._start(row, task)
        return self._start(row, task) if reason and is_used_world else reason

    def _start(self, row: int, task: Task) -> str:
        try:
            with self._timeout.within(f"The start of {task.id}"):
                world = self._worlds[row] = self._worlds[row] or self._make()
                state = world.begin(task)
            if state != task.initial_state:
                raise EnvironmentFailure(
                    f"{task.id} began with {_shortened(state)}, recorded was "
                    f"{_shortened(task.initial_state)}.",
                    "Expected the same state at every start of a task.",
                )
            self.admissible[row] = tuple(world.admissible)
            return ""
        except (Exception, SystemExit) as error:  # whatever it is, it is the world's fault, not the agent's
            self._discard(row)
            return _error_text(error)

    def _act(self, row: int, action: str) -> Step:
        world = self._worlds[row]
        try:
            if row in self._broken or world is None:
                raise EnvironmentFailure(self._broken.get(row, "This episode has failed before."))
            with self._timeout.within(f"{action!r:.100} in {self._task_ids[row]}"):
                step = _require_valid(world.act(action))
            self._states[row] = step.state
            self.admissible[row] = tuple(world.admissible)
            return Step(step.state, step.reward, step.done, {"admissible": self.admissible[row], **step.info})
        except (Exception, SystemExit) as error:  # recorded, and the next episode gets a new world
            self._discard(row)
            self._broken[row] = _error_text(error)
            return Step(self._states[row], 0.0, True, {"failed": self._broken[row]})

    def _discard(self, row: int) -> None:
        world = self._worlds[row]
        self._worlds[row] = None
        if world is not None:
            with suppress(Exception), self._timeout.within("The end of an episode"):
                world.close()


def _refuse_generated(task: Task) -> None:
    if task.generated:
        raise EnvironmentFailure(
            f"The task {task.id} was generated: it has no real world.",
            next_step="Embody a dreamed episode of it.",
        )


@runtime_checkable
class _Array(Protocol):
    """An array or tensor, as NumPy and torch have them."""

    shape: Any

    def item(self) -> object: ...


def plain_value(value: object) -> object:
    """Return Python's own number or truth value in place of an array or tensor that holds one alone."""
    return value.item() if isinstance(value, _Array) and value.shape == () else value


def _require_valid(step: object) -> Step:
    """Return a world's answer with reward and end as plain values.

    Raises:
        EnvironmentFailure: it is none that the pipeline can use.
    """
    if not isinstance(step, Step):
        raise EnvironmentFailure(
            f"The world's act gave {_shortened(step)}.",
            "Expected a Step (components/environments/protocol.py).",
        )
    if not is_text(step.state):
        raise EnvironmentFailure(
            f"The world answered {_shortened(step.state)}.", "Expected a state of words."
        )
    reward = plain_value(step.reward)
    done = plain_value(step.done)
    if not isinstance(done, (bool, int, float)) or done not in (0, 1):
        raise EnvironmentFailure(f"The world's act gave done={_shortened(done)}.", "Expected true or false.")
    if not isinstance(reward, (bool, int, float)) or reward not in (0, 1) or reward > done:
        raise EnvironmentFailure(
            f"The world's act gave reward={_shortened(reward)}, done={bool(done)}.",
            "Expected the reward 1.0 at the end of a success, else 0.0.",
        )
    return replace(step, reward=float(reward), done=bool(done))


def _error_text(error: BaseException) -> str:
    if isinstance(error, EnvironmentFailure):
        return str(error)
    return f"{type(error).__name__}: {error}".removesuffix(": ")


def _shortened(value: object) -> str:
    text = repr(value)
    if len(text) <= _LONGEST_SHOWN:
        return text
    return f"{text[:_LONGEST_SHOWN]}... ({len(text):,} characters)"
