"""The one protocol of all worlds, real or dreamed, and what a real environment's adapter gives beside it.

Worlds are batched, because both kinds are only fast in batches. RL code cannot tell a dream from a real
environment.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, runtime_checkable

from components.records import Task, Trajectory

Fact = tuple[str, ...]
"""One assertion of a state, such as `("at", "fridge 1")` or `("in", "mug 1", "cabinet 2")`."""

NO_ACTION = "?"
"""What a world is sent where an agent's reply holds no action; it refuses that."""


@dataclass(frozen=True)
class Step:
    """What the world answers to one action.

    `reward` is 1.0 at the final step of a success, else 0.0. `done` is True when the world declares the
    episode over. `info` holds extras: `observation` (the world's own words), `admissible` (list of actions),
    `failed` (an error text when infrastructure, not the agent, ended the episode), `reasoning` (of a dream),
    `unparsable` (True in a dream that had no answer that could be read and believed).
    """

    state: str
    reward: float
    done: bool
    info: dict[str, Any] = field(default_factory=dict)


@runtime_checkable
class Environment(Protocol):
    """A batch of episodes, one row a task. Rows that are done are no longer stepped: pass None as their
    action.
    """

    interactions: int
    """Steps taken so far over all rows: of a real environment, the cost that a budget bounds."""

    def reset(self, tasks: Sequence[Task]) -> list[str]:
        """Start one episode a task; the list of initial states."""
        ...

    def step(self, actions: Sequence[str | None]) -> list[Step | None]:
        """One step for each row whose action is not None; None for the others."""
        ...

    def close(self) -> None:
        """Free processes and memory. May be called twice."""
        ...


def side_by_side(world: object, wanted: int) -> int:
    """How many episodes are played at once in `world`: those wanted, or as many as it has room for (its
    `most_rows`).
    """
    return min(wanted, getattr(world, "most_rows", None) or wanted)


@runtime_checkable
class Forkable(Environment, Protocol):
    """An environment in which alternatives can be tried without leaving the place (for Early Experience)."""

    def probe(self, actions: Sequence[Sequence[str]]) -> list[list[Step]]:
        """What each of a row's actions really leads to from where it stands; the rows stay there. Every one
        counts as an interaction.
        """
        ...


@runtime_checkable
class Judging(Protocol):
    """An adapter that can tell how an episode would have ended under another instruction (for
    `experience_model.hindsight`).
    """

    def judged(self, trajectory: Trajectory) -> float | None:
        """The reward of the last step of `trajectory` under its task's instruction, as what was seen
        determines it; None if it does not.

        None too where an earlier step would have ended the episode.
        """
        ...


@runtime_checkable
class Grounding(Protocol):
    """An adapter that can tell when reasoning quotes what it was never shown (for
    `experience_model.grounded`).
    """

    def grounded(self, task: Task, states: Sequence[str], action: str, reasoning: str) -> int:
        """How many characters of `reasoning` about `action` in the last of `states`, from its beginning on,
        quote rightly.

        Asked of every answer, so it must be fast. It holds the reasoning against these texts alone, and never
        objects to `reason`'s own.
        """
        ...


Behaviour = Callable[[Trajectory, Sequence[str]], tuple[str, str]]
"""A behaviour policy for offline data: (trajectory so far, admissible actions) -> (thought, action)."""


@runtime_checkable
class Adapter(Protocol):
    """Everything the pipeline needs to know of one real environment, and the only place where it is known."""

    name: str

    @property
    def notice(self) -> str:
        """What must be said wherever its scores are shown (that they are not those of a benchmark, for
        example); empty if nothing.
        """
        ...

    def tasks(self, split: str, count: int, seed: int) -> list[Task]:
        """`count` different tasks of `split` (`train` or `test`), the same for the same arguments."""
        ...

    def open(
        self, budget: int | None = None, *, workers: int | None = None, stock: bool = False
    ) -> Environment:
        """A real environment. It counts its interactions and raises EnvironmentFailure before it exceeds
        `budget`.

        Args:
            workers: processes that it may use; None: as configured.
            stock: as its makers give it, without what this adapter does to make it faster. The same answers,
                for a comparison of speed.
        """
        ...

    def behaviour(self, name: str, task: Task, seed: int) -> Behaviour:
        """A behaviour policy: `expert`, `noisy`, `near_miss` or `random`, fresh for one episode."""
        ...

    def think(self, trajectory: Trajectory, action: str) -> str:
        """The thought that leads to `action` after `trajectory`: what the agent is trained to write before it
        acts.
        """
        ...

    def reflect(self, trajectory: Trajectory, action: str, alternatives: Sequence[tuple[str, str]]) -> str:
        """The thought that leads to `action` in the light of alternatives (action, next state) that were
        really executed from there.
        """
        ...

    def reason(self, trajectory: Trajectory, action: str, next_state: str, reward: float) -> str:
        """Why `action` leads to `next_state`: the programmatic teacher's R* (Eq. 5), from what the agent
        could know.
        """
        ...

    def facts(self, trajectory: Trajectory) -> set[Fact]:
        """What the last state of `trajectory` asserts, in the light of its history."""
        ...

    def contradicts(self, claim: Fact, truth: set[Fact]) -> bool:
        """True if `truth` denies `claim` (being silent on it is not a denial)."""
        ...

    def revealing(self, trajectory: Trajectory, action: str, next_state: str) -> bool:
        """True if `next_state` shows something that the history could not determine (what lies in the
        cabinet).
        """
        ...

    def well_formed(self, action: str) -> bool:
        """True if `action` follows the grammar of the world's commands, whether it is possible or not."""
        ...

    def refused(self, next_state: str) -> bool:
        """True if `next_state` is the feedback for an action that the world did not carry out."""
        ...

    def contradiction(self, trajectory: Trajectory, next_state: str) -> str:
        """What in `next_state` cannot be true if all states of `trajectory` are, in words; empty if nothing.

        Asked of every dreamed state, so it must be fast; "" always is a valid answer. It must never object to
        a real state.
        """
        ...

    def premise(self, trajectory: Trajectory) -> str:
        """What of the hidden world decides the task, as the whole `trajectory` has shown it; empty where it
        has not shown all of it.

        A dream decides it before the first step and keeps to it (`Trajectory.premise`); "" always is a valid
        answer.
        """
        ...

    def objection(self, task: Task, premise: str) -> str:
        """Why `premise` cannot be true of `task`, by what their texts say; empty if it can.

        A world whose episodes show no premise objects to all: what is not objected to, a dream believes.
        """
        ...

    def progress(self, trajectory: Trajectory) -> float:
        """How far `trajectory` has come towards its goal, from 0.0 to 1.0, for rewards that rank episodes
        alike in outcome (HERO).

        Read from the states, so real and dreamed episodes are measured alike; the outcome itself always is a
        valid answer.
        """
        ...

    def embody(self, dreamed: Trajectory) -> Task:
        """The task whose real world is the one that `dreamed` described, to replay its actions in.

        Raises:
            EnvironmentFailure: no world can be built that agrees with the dream (it contradicts itself).
        """
        ...

    def unseen(self, task: Task) -> bool:
        """True if the world of `task` (its floor plan, its site) is one in which no training task plays."""
        ...

    def feasible(self, task: Task) -> str:
        """Why a generated task is malformed or can never be solved, by what its text says; empty if it
        can.
        """
        ...
