"""The batched environment that every world is played through, and the core of an adapter.

Real and dreamed worlds answer to the same `Environment`, so RL code cannot tell them apart. Both are batched,
because both are only fast in batches. An `AdapterCore` is what every real world must give; what a world may
give in addition stands in `capabilities.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, runtime_checkable

from components.records import Task, Trajectory

Fact = tuple[str, ...]
"""One assertion of a state, such as `("at", "fridge 1")` or `("in", "mug 1", "cabinet 2")`."""

NO_ACTION = "?"
"""The action sent to a world where an agent's reply holds none. Every world refuses it."""

Behaviour = Callable[[Trajectory, Sequence[str]], tuple[str, str]]
"""A behaviour policy for offline data: (trajectory so far, admissible actions) -> (thought, action).

The thought is the one that led to this action, "" if none did: an action at random has none.
"""


@dataclass(frozen=True)
class Step:
    """A world's answer to one action.

    `reward` is 1.0 at the final step of a success, else 0.0. `done` is True when the world ends the episode.
    `info` holds optional entries:

    - `observation`: the text of the world itself, before it was mapped to a state.
    - `admissible`: the list of actions that are possible now.
    - `failed`: an error text, if the infrastructure and not the agent ended the episode.
    - `reasoning`: the reasoning of a dream.
    - `demonstrations`: the transitions that a dream retrieved for this step.
    - `unparsable`: True if a dream gave no answer that could be parsed and accepted.
    """

    state: str
    reward: float
    done: bool
    info: dict[str, Any] = field(default_factory=dict)


@runtime_checkable
class Environment(Protocol):
    """A batch of episodes, one row a task. For a row that is done, pass None as its action."""

    interactions: int
    """Steps taken so far, over all rows. For a real environment this is the cost that a budget limits."""

    def reset(self, tasks: Sequence[Task]) -> list[str]:
        """Start one episode a task and return the initial states."""
        ...

    def step(self, actions: Sequence[str | None]) -> list[Step | None]:
        """Take one step in each row whose action is not None; the answers of the other rows are None."""
        ...

    def close(self) -> None:
        """Free processes and memory. May be called twice."""
        ...


@runtime_checkable
class RealEnvironment(Environment, Protocol):
    """An environment of the real world: it also says what can be done, for behaviours that choose from it."""

    @property
    def admissible(self) -> Sequence[Sequence[str]]:
        """The actions that each row admits now; empty for a row whose world lists none."""
        ...


@runtime_checkable
class Forkable(RealEnvironment, Protocol):
    """An environment that can try alternative actions from where it stands (capability: forking).

    Without it Early Experience plays the episode again in a second environment for each alternative, so an
    alternative at step t costs t + 1 real steps (`replayed_forks.py`).
    """

    def probe(self, actions: Sequence[Sequence[str]]) -> list[list[Step]]:
        """Execute each row's actions, each from the row's current state, and return their answers.

        The rows stay where they are. Every action counts as an interaction.
        """
        ...


@runtime_checkable
class Separable(Environment, Protocol):
    """An environment whose episodes may be stepped by threads of their own (capability: separate episodes).

    Without it all rows are stepped at once, so each step takes as long as the slowest row.
    """

    is_separable: bool
    """Whether this one can be separated, as it is configured."""

    def separate(self, count: int) -> list[Environment]:
        """Return `count` environments of one row each, over the same world."""
        ...

    def rejoin(self, parts: Sequence[Environment]) -> None:
        """Add what `parts` have counted to the counts of this environment."""
        ...


@runtime_checkable
class LimitsRows(Protocol):
    """An environment that can only play so many episodes at the same time (capability: row limit).

    Without it all rows that are asked for are played in one batch.
    """

    most_rows: int | None
    """The largest number of rows; None: any number."""


@runtime_checkable
class Refillable(Environment, Protocol):
    """An environment that begins an episode in one row while other rows go on (capability: refilled rows).

    Without it the next tasks begin when all episodes of a batch are over.
    """

    def refill(self, row: int, task: Task) -> str:
        """Begin an episode of `task` in `row`, whose last episode is over; return its initial state."""
        ...


def concurrent_rows(world: object, requested: int) -> int:
    """Return how many episodes `world` plays in one batch: `requested`, or its row limit if that is lower."""
    limit = world.most_rows if isinstance(world, LimitsRows) else None
    return min(requested, limit or requested)


@runtime_checkable
class AdapterCore(Protocol):
    """What every real world gives. `capabilities.Adapter` adds the optional parts, with their defaults."""

    name: str
    """The environment's name, as in `Task.environment`."""

    @property
    def notice(self) -> str:
        """The sentence to print wherever a score of this world is shown; empty if none is needed.

        Example: that its scores are not those of a benchmark.
        """
        ...

    def tasks(self, split: str, count: int, seed: int) -> list[Task]:
        """Return `count` different tasks of `split`, the same for the same arguments.

        `split` is `train`, `test`, or `validation` if the world has it.

        A task carries its description: the instruction, and the initial state of its episodes.
        """
        ...

    def open(
        self, budget: int | None = None, *, workers: int | None = None, stock: bool = False
    ) -> RealEnvironment:
        """Open a real environment that counts its interactions.

        Args:
            budget: interactions that it may not exceed; None: any number.
            workers: processes that it may use; None: as configured.
            stock: without this adapter's own speed-ups, to compare their speed. The answers are the same.

        Raises:
            EnvironmentFailure: from `step`, before the budget is exceeded.
        """
        ...

    def behaviour(self, name: str, task: Task, seed: int) -> Behaviour:
        """Return a behaviour policy for one episode: `random`, `expert`, `noisy` or `near_miss`.

        Every world plays `random`. The other three need an expert or recorded solutions.

        Raises:
            EnvironmentFailure: the world cannot play this behaviour in this task.
        """
        ...

    def well_formed(self, action: str) -> bool:
        """Return True if `action` follows the grammar of the world's actions, possible or not."""
        ...

    def refused(self, next_state: str) -> bool:
        """Return True if `next_state` is the feedback to an action that the world did not carry out."""
        ...
