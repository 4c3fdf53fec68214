"""Several worlds as one environment: one policy and one dream for all of them (`environment.name=mixed`).

    environment:
      name: mixed
      worlds: [alfworld, webshop]

Tasks come from the worlds in turn. What a world's adapter knows is used for its own tasks. The families of
tasks are the worlds: with `rl.algorithm.normalise_families` advantages are normalised within each of them
(AgentRL, arXiv 2510.04206).

Not offered: hindsight (`Judging`), checked quotations (`Grounding`), and forks for Early Experience.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from components.environments.capabilities import Adapter, capabilities
from components.environments.mixed.environment import MixedEnvironment
from components.environments.mixed.tasks import NAME, mixed_task, own_task, own_trajectory
from components.environments.protocol import Behaviour, Fact, RealEnvironment
from components.environments.text_world.listed_tasks import listed_tasks
from components.environments.validation_split import require_split, splits_of
from components.records import TEST, TRAIN, VALIDATION, Task, Trajectory


class WorldFact(tuple[str, ...]):
    """A fact that knows which world it is about; it equals the same fact without a world."""

    world: str

    def __new__(cls, fact: Fact, world: str) -> WorldFact:
        """Return the fact of a world."""
        own = super().__new__(cls, fact)
        own.world = world
        return own

    def __getnewargs__(self) -> tuple[Fact, str]:
        """Return what a copy or a pickled fact is made of."""
        return tuple(self), self.world


class MixedAdapter(Adapter):
    """What the adapters of several worlds know together.

    Args:
        adapters: name of a world -> its adapter.
    """

    name = NAME

    def __init__(self, adapters: Mapping[str, Adapter]) -> None:
        self._adapters = dict(adapters)
        self.is_live = all(adapter.is_live for adapter in self._adapters.values())
        has_validation = all(VALIDATION in splits_of(adapter) for adapter in self._adapters.values())
        self.splits = (TRAIN, VALIDATION, TEST) if has_validation else (TRAIN, TEST)

    @property
    def notice(self) -> str:
        """The worlds' notices."""
        return self._of_all(lambda adapter: adapter.notice, " ")

    def tasks(self, split: str, count: int, seed: int) -> list[Task]:
        """Return `count` tasks, the worlds' in turn.

        Raises:
            EnvironmentFailure: a world has fewer than its share, or gives tasks of another world.
        """
        require_split(split, self.splits)
        number = len(self._adapters)
        share = -(-count // number)
        lists = [listed_tasks(adapter, name, split, share, seed) for name, adapter in self._adapters.items()]
        return [mixed_task(lists[index % number][index // number]) for index in range(count)]

    def open(
        self, budget: int | None = None, *, workers: int | None = None, stock: bool = False
    ) -> RealEnvironment:
        """Open all worlds, with one budget."""
        worlds = {
            name: adapter.open(workers=workers, stock=stock) for name, adapter in self._adapters.items()
        }
        return MixedEnvironment(worlds, budget)

    def behaviour(self, name: str, task: Task, seed: int) -> Behaviour:
        """Return the behaviour that the task's world has by this name."""
        play = self._of(task).behaviour(name, own_task(task), seed)
        return lambda trajectory, admissible: play(own_trajectory(trajectory), admissible)

    def well_formed(self, action: str) -> bool:
        """Return True if `action` follows the grammar of one of the worlds; it does not say of which."""
        return any(adapter.well_formed(action) for adapter in self._adapters.values())

    def refused(self, next_state: str) -> bool:
        """Return True if `next_state` is a refusal of one of the worlds."""
        return any(adapter.refused(next_state) for adapter in self._adapters.values())

    def describe_world(self) -> str:
        """Return what the worlds are."""
        return self._of_all(lambda adapter: adapter.describe_world(), "\n")

    def describe_actions(self) -> str:
        """Return which actions the worlds have."""
        return self._of_all(lambda adapter: adapter.describe_actions(), "\n")

    def reflect(self, trajectory: Trajectory, alternatives: Sequence[tuple[str, str]], thought: str) -> str:
        """Return the reflection of the task's world."""
        return self._of(trajectory.task).reflect(own_trajectory(trajectory), alternatives, thought)

    def reason(self, trajectory: Trajectory, action: str, next_state: str, reward: float) -> str:
        """Return the reasoning of the task's world."""
        return self._of(trajectory.task).reason(own_trajectory(trajectory), action, next_state, reward)

    def facts(self, trajectory: Trajectory) -> set[Fact]:
        """Return the facts of the task's world, each of which knows its world."""
        world = own_task(trajectory.task).environment
        return {WorldFact(fact, world) for fact in self._adapters[world].facts(own_trajectory(trajectory))}

    def contradicts(self, claim: Fact, truth: set[Fact]) -> bool:
        """Return True if the claim's world says that `truth` denies it."""
        assert isinstance(claim, WorldFact)
        return self._adapters[claim.world].contradicts(claim, truth)

    def contradiction(self, trajectory: Trajectory, next_state: str) -> str:
        """Return what the task's world objects to."""
        return self._of(trajectory.task).contradiction(own_trajectory(trajectory), next_state)

    def revealing(self, trajectory: Trajectory, action: str, next_state: str) -> bool:
        """Return whether the step reveals something in the task's world."""
        return self._of(trajectory.task).revealing(own_trajectory(trajectory), action, next_state)

    def premise(self, trajectory: Trajectory) -> str:
        """Return the premise that the task's world reads; empty where that world has none."""
        return self._of(trajectory.task).premise(own_trajectory(trajectory))

    def objection(self, task: Task, premise: str) -> str:
        """Return what the task's world objects to."""
        return self._of(task).objection(own_task(task), premise)

    def progress(self, trajectory: Trajectory) -> float:
        """Return the progress as the task's world measures it."""
        return self._of(trajectory.task).progress(own_trajectory(trajectory))

    def embody(self, dreamed: Trajectory) -> Task:
        """Return the real task that the task's world makes of the dream."""
        return mixed_task(self._of(dreamed.task).embody(own_trajectory(dreamed)))

    def unseen(self, task: Task) -> bool:
        """Return whether no training task of its world plays where `task` does."""
        return self._of(task).unseen(own_task(task))

    def feasible(self, task: Task) -> str:
        """Return why its world cannot solve the generated task; empty if it can."""
        return self._of(task).feasible(own_task(task))

    @property
    def adapters(self) -> Mapping[str, Adapter]:
        """Name of a world -> its adapter."""
        return self._adapters

    def _of(self, task: Task) -> Adapter:
        return self._adapters[own_task(task).environment]

    def _of_all(self, text: Callable[[Adapter], str], separator: str) -> str:
        return separator.join(dict.fromkeys(filter(None, map(text, self._adapters.values()))))


def adapter_of(adapter: Adapter, task: Task) -> Adapter:
    """Return the adapter of the task's world: `adapter` itself if it is that of a single world."""
    return adapter.adapters[own_task(task).environment] if isinstance(adapter, MixedAdapter) else adapter


def shared_capabilities(adapter: Adapter, environment: object) -> list[str]:
    """Return the names of the capabilities of an adapter; of several worlds those that each of them has."""
    if not isinstance(adapter, MixedAdapter):
        return capabilities(adapter, environment)
    first, *others = (capabilities(one, None) for one in adapter.adapters.values())
    return [name for name in first if all(name in other for other in others)]
