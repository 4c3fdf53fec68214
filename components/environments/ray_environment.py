"""A real environment whose rows are played by worker processes on a Ray cluster.

Each worker opens the world itself and plays a share of the rows. A worker that is lost is replaced: its rows'
episodes are begun again and their actions repeated, so the rollouts are those of a run without the loss. The
repeated steps are counted apart (`repeated_steps`) and not as interactions.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from components.cluster.ray_workers import RayWorkers, WorkerLost
from components.config.worlds.environment_config import EnvironmentConfig
from components.environments import make_adapter
from components.environments.budget import spend
from components.environments.capabilities import Adapter
from components.environments.protocol import Forkable, LimitsRows, RealEnvironment, Step
from components.errors import EnvironmentFailure
from components.records import Task

_LOG = logging.getLogger(__name__)


@dataclass
class _Row:
    """What a lost worker's successor must be told: the task, and the actions with the states they led to."""

    task: Task
    actions: list[str] = field(default_factory=list)
    states: list[str] = field(default_factory=list)
    is_over: bool = False


class RayEnvironment:
    """A `RealEnvironment` of `count` workers. Neighbouring rows share a worker.

    Attributes:
        interactions: steps of all rows so far.
        repeated_steps: steps that were taken again because a worker was lost.
        lost_workers: workers that were lost.
        admissible: the actions that each row admits now.
        most_rows: the largest number of rows; None: any number.
    """

    def __init__(self, workers: RayWorkers, budget: int | None = None, most_rows: int | None = None) -> None:
        """Make an environment without rows. Args: workers: of `_Host`s; this environment ends them."""
        self.interactions = 0
        self.repeated_steps = 0
        self.lost_workers = 0
        self.budget = budget
        self.most_rows = most_rows
        self.admissible: list[Sequence[str]] = []
        self._workers = workers
        self._rows: list[_Row] = []

    def reset(self, tasks: Sequence[Task]) -> list[str]:
        """Start one episode a task and return the initial states.

        Raises:
            EnvironmentFailure: an episode cannot be started.
        """
        self._rows = [_Row(task) for task in tasks]
        shares = self._shares(range(len(tasks)))
        answers = self._ask(
            "reset", {place: ([tasks[row] for row in rows],) for place, rows in shares.items()}
        )
        by_row = {
            row: answer
            for place, rows in shares.items()
            for row, answer in zip(rows, answers[place], strict=True)
        }
        self.admissible = [by_row[row][1] for row in range(len(tasks))]
        return [by_row[row][0] for row in range(len(tasks))]

    def step(self, actions: Sequence[str | None]) -> list[Step | None]:
        """Take one step in each row with an action.

        Raises:
            EnvironmentFailure: the budget of interactions does not allow these steps.
        """
        active = [row for row, action in enumerate(actions) if action is not None]
        self.interactions = spend(self.interactions, len(active), self.budget)
        shares = self._shares(active)
        requests = {place: ({row: actions[row] for row in rows},) for place, rows in shares.items()}
        answers = self._ask("step", self._in_places(requests))
        steps: list[Step | None] = [None] * len(actions)
        for place, rows in shares.items():
            for row, (step, admissible) in zip(rows, answers[place], strict=True):
                steps[row] = step
                self.admissible[row] = admissible
                record = self._rows[row]
                record.actions.append(str(actions[row]))
                record.states.append(step.state)
                record.is_over = step.done
        return steps

    def close(self) -> None:
        """End the workers. May be called twice."""
        self._workers.close()

    def _shares(self, rows: Sequence[int]) -> dict[int, list[int]]:
        """Return place of a worker -> those of `rows` that it plays."""
        shares: dict[int, list[int]] = {}
        for row in rows:
            shares.setdefault(row * len(self._workers) // len(self._rows), []).append(row)
        return shares

    def _in_places(self, requests: Mapping[int, tuple[Any, ...]]) -> dict[int, tuple[Any, ...]]:
        """Return the requests with row numbers as their workers count them, from 0."""
        first = {place: rows[0] for place, rows in self._shares(range(len(self._rows))).items()}
        return {
            place: ({row - first[place]: value for row, value in by_row.items()},)
            for place, (by_row,) in requests.items()
        }

    def _ask(self, method: str, requests: Mapping[int, tuple[Any, ...]]) -> dict[int, Any]:
        """Call a method of the workers' worlds; a lost worker is replaced, and asked again."""

        def prepare(place: int) -> None:
            self.lost_workers += 1
            _LOG.warning("worker %d of the environment was lost; its episodes are repeated", place)
            if method != "reset":
                self._repeat(place)

        return self._workers.call_surely(
            {place: (method, request) for place, request in requests.items()}, prepare
        )

    def _repeat(self, place: int) -> None:
        """Bring a new worker's episodes to where the lost worker's were.

        Raises:
            EnvironmentFailure: the world answers otherwise than before.
        """
        records = [self._rows[row] for row in self._shares(range(len(self._rows)))[place]]
        episodes = [(record.task, [] if record.is_over else record.actions) for record in records]
        answer = self._workers.call({place: ("repeat", (episodes,))})[place]
        if isinstance(answer, WorkerLost):
            return  # the request that follows finds it lost too, and is repeated
        for record, states in zip(records, answer, strict=True):
            self.repeated_steps += len(states)
            if states and states != record.states:
                raise EnvironmentFailure(
                    f"A worker was lost in an episode of {record.task.id}, and the same actions lead to "
                    "other states now.",
                    "Expected a world that answers the same actions alike.",
                    "Type the same command again: it continues from its last checkpoint.",
                )


class ForkableRayEnvironment(RayEnvironment):
    """A `RayEnvironment` over a world that can try alternatives (`protocol.Forkable`)."""

    def probe(self, actions: Sequence[Sequence[str]]) -> list[list[Step]]:
        """Execute each row's actions, each from the row's current state; the rows stay where they are.

        Raises:
            EnvironmentFailure: the budget of interactions does not allow these steps.
        """
        self.interactions = spend(self.interactions, sum(map(len, actions)), self.budget)
        shares = self._shares(range(len(actions)))
        requests = {place: ([list(actions[row]) for row in rows],) for place, rows in shares.items()}
        answers = self._ask("probe", requests)
        return [steps for place in shares for steps in answers[place]]


def open_on_ray(
    open_world: Callable[[], RealEnvironment], count: int, address: str, budget: int | None = None
) -> RealEnvironment:
    """Return an environment of `count` workers on a Ray cluster, which can fork if the world can.

    Args:
        open_world: pickled, and called in each worker.
        address: of the cluster (`ray_workers.connect`).
        budget: interactions that may not be exceeded; None: any number.

    Raises:
        ClusterError: the cluster cannot be used.
        EnvironmentFailure, ConfigError: a worker cannot open the world.
    """
    workers = RayWorkers(address, count, _Opening(open_world))
    row_limit, is_forkable = workers.call({0: ("capabilities", ())})[0]
    kind = ForkableRayEnvironment if is_forkable else RayEnvironment
    return kind(workers, budget, row_limit * count if row_limit else None)


def spread_over_cluster(adapter: Adapter, config: EnvironmentConfig, address: str) -> Adapter:
    """Make the environments that `adapter` opens from now on run on a Ray cluster, and return the adapter.

    Args:
        config: of the adapter's world; it has `workers` workers.
        address: of the cluster (`ray_workers.connect`).
    """

    def open_spread(
        budget: int | None = None, *, workers: int | None = None, stock: bool = False
    ) -> RealEnvironment:
        return open_on_ray(partial(_open_one, config, stock), workers or config.workers, address, budget)

    setattr(adapter, "open", open_spread)  # noqa: B010
    return adapter


def _open_one(config: EnvironmentConfig, stock: bool) -> RealEnvironment:
    """Open the world in one worker."""
    return make_adapter(config).open(workers=1, stock=stock)


class _Host:
    """A worker's world, and its share of the rows."""

    def __init__(self, world: RealEnvironment) -> None:
        self._world = world
        self._count = 0

    def capabilities(self) -> tuple[int | None, bool]:
        """Return the world's own limit of rows, and whether it can fork."""
        limit = self._world.most_rows if isinstance(self._world, LimitsRows) else None
        return limit, isinstance(self._world, Forkable)

    def reset(self, tasks: Sequence[Task]) -> list[tuple[str, Sequence[str]]]:
        """Return the initial state and the admissible actions of each row."""
        self._count = len(tasks)
        states = self._world.reset(tasks)
        return list(zip(states, map(tuple, self._world.admissible), strict=True))

    def step(self, actions: Mapping[int, str]) -> list[tuple[Step, Sequence[str]]]:
        """Return the answers to `actions` by row, in their order, with the admissible actions after them."""
        answers = self._world.step([actions.get(row) for row in range(self._count)])
        return [(answer, tuple(self._world.admissible[row])) for row in actions if (answer := answers[row])]

    def probe(self, actions: Sequence[Sequence[str]]) -> list[list[Step]]:
        """Return what each row's alternatives lead to."""
        assert isinstance(self._world, Forkable)
        return self._world.probe(actions)

    def repeat(self, episodes: Sequence[tuple[Task, Sequence[str]]]) -> list[list[str]]:
        """Begin the episodes and take their recorded actions again; return the states of each."""
        self.reset([task for task, _ in episodes])
        states: list[list[str]] = [[] for _ in episodes]
        for turn in range(max((len(actions) for _, actions in episodes), default=0)):
            due = {row: actions[turn] for row, (_, actions) in enumerate(episodes) if turn < len(actions)}
            for row, (answer, _) in zip(due, self.step(due), strict=True):
                states[row].append(answer.state)
        return states


@dataclass(frozen=True)
class _Opening:
    open_world: Callable[[], RealEnvironment]

    def __call__(self) -> _Host:
        return _Host(self.open_world())
