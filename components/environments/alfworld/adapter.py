"""ALFWorld as one environment of the pipeline: everything that the stages need to know of it."""

from __future__ import annotations

import copy
import hashlib
import json
import os
import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from components.config.worlds.environment_config import EnvironmentConfig
from components.environments.alfworld import behaviours, coherence, premise, reasoning
from components.environments.alfworld.embody import embody
from components.environments.alfworld.games import (
    FAMILIES,
    HOLDS,
    LAMPS,
    PORTABLE,
    World,
    floors,
    goals,
    initial_observation_state,
    kind,
    make_world,
)
from components.environments.alfworld.knowledge import learn, read_goal, well_formed
from components.environments.alfworld.premise import objection
from components.environments.alfworld.progress import progress
from components.environments.alfworld.states import StateMapper, contradicts, read_state, state_facts
from components.environments.alfworld.workers import Workers
from components.environments.budget import spend
from components.environments.protocol import Behaviour, Environment, Fact, Step
from components.environments.validation_split import require_split
from components.errors import EnvironmentFailure
from components.records import TEST, TRAIN, VALIDATION, Task, Trajectory

_OFFICIAL = {TRAIN: ("train",), VALIDATION: ("train",), TEST: ("valid_seen", "valid_unseen")}
_VALIDATION_SHARE = 10
"""Of the official training games one folder (a goal in a scene) of so many is kept for validation; `valid_*`
are the test.
"""


def unseen_floor(floor: int) -> bool:
    """True for floor plans that no training game uses: every fifth one."""
    return floor % 5 == 0


def is_validation_folder(name: str) -> bool:
    """True for a folder of official training games, named after its goal and scene, that no training task is
    drawn from.
    """
    return int(hashlib.sha256(name.encode()).hexdigest()[:8], 16) % _VALIDATION_SHARE == 0


class AlfworldAdapter:
    """The adapter of design's environment contract (`components/environments/protocol.py`) for ALFWorld."""

    name, splits = "alfworld", (TRAIN, VALIDATION, TEST)

    def __init__(self, config: EnvironmentConfig) -> None:
        self.config = config

    @property
    def notice(self) -> str:
        """That generated games are none of the benchmark's."""
        if self.config.games == "official":
            return ""
        return (
            "Games are generated from the alfworld package's floor plans: scores are not ALFWorld "
            "benchmark scores."
        )

    def tasks(self, split: str, count: int, seed: int) -> list[Task]:
        """`count` different tasks, families in turn; in the splits validation and test every other game has
        an unseen floor plan.

        Generated games of each split come from a stream of random numbers of its own. Official validation
        games are training games in folders that no training task comes from.

        Raises:
            EnvironmentFailure: an unknown split, or fewer official games on disk than asked for.
        """
        require_split(split, self.splits)
        if self.config.games == "official":
            return self._official(split, count, seed)
        tasks: dict[str, Task] = {}
        index = 0
        while len(tasks) < count:
            task = self._generated(split, index, seed)
            tasks.setdefault(task.id, task)
            index += 1
        return list(tasks.values())

    def _generated(self, split: str, index: int, seed: int) -> Task:
        family = FAMILIES[index % len(FAMILIES)]
        rng = random.Random(f"{split}/{self.config.seed}/{seed}/{index}")
        unseen = split != TRAIN and index // len(FAMILIES) % 2 == 1
        floor = rng.choice([f for f in floors(family) if unseen_floor(f) == unseen])
        world = make_world(family, floor, rng.getrandbits(48), self.config.receptacles, self.config.objects)
        spec = world.to_json()
        digest = hashlib.sha256(spec.encode()).hexdigest()[:12]
        return Task(
            f"alfworld/{family}/{floor}/{digest}",
            self.name,
            split,
            world.instruction,
            initial_observation_state(world),
            family,
            spec,
        )

    def _official(self, split: str, count: int, seed: int) -> list[Task]:
        root = _official_root()
        paths = sorted(
            p for part in _OFFICIAL[split] for p in (root / "json_2.1.1" / part).glob("**/game.tw-pddl")
        )
        if split != TEST:
            paths = [
                path
                for path in paths
                if is_validation_folder(path.parent.parent.name) == (split == VALIDATION)
            ]
        if len(paths) < count:
            raise EnvironmentFailure(
                f"{root} holds {len(paths)} official games of the split {split}.",
                f"Expected at least {count}.",
                "Run `alfworld-download`.",
            )
        chosen = sorted(random.Random(seed).sample(paths, count))
        specs = [json.dumps({"path": str(path.relative_to(root))}) for path in chosen]
        return self._read_official(split, specs)

    def _read_official(self, split: str, specs: list[str]) -> list[Task]:
        workers, tasks = Workers(self.config.workers), []
        try:
            for start in range(0, len(specs), 32):
                for row, seen in sorted(
                    workers.load(dict(enumerate(map(_game, specs[start : start + 32])))).items()
                ):
                    spec = specs[start + row]
                    path = json.loads(spec)["path"]
                    instruction = seen.text.split("Your task is to: ")[1].rstrip(". ")
                    goal = read_goal(instruction)
                    family = goal.family if goal else Path(path).parts[2].split("-")[0]
                    tasks.append(
                        Task(
                            f"alfworld/{path}",
                            self.name,
                            split,
                            instruction,
                            StateMapper().initial(seen.text),
                            family,
                            spec,
                        )
                    )
        finally:
            workers.close()
        return tasks

    def open(
        self, budget: int | None = None, *, workers: int | None = None, stock: bool = False
    ) -> Environment:
        """The real engine in worker processes, with our caches unless `stock` is asked for."""
        return AlfworldEnvironment(workers or self.config.workers, budget, cached=not stock)

    def behaviour(self, name: str, task: Task, seed: int) -> Behaviour:
        """See `behaviours.make_behaviour`."""
        return behaviours.make_behaviour(name, task, seed)

    def think(self, trajectory: Trajectory, action: str) -> str:
        """What is seen beside what is wanted, and the open sub-goal after `trajectory`: see
        `behaviours.think`.
        """
        goal = read_goal(trajectory.task.instruction)
        return behaviours.think(goal, learn(trajectory)) if goal else ""

    def reflect(self, trajectory: Trajectory, action: str, alternatives: Sequence[tuple[str, str]]) -> str:
        """See `behaviours.reflect`."""
        return behaviours.reflect(trajectory, alternatives, self.think(trajectory, action))

    def reason(self, trajectory: Trajectory, action: str, next_state: str, reward: float) -> str:
        """See `reasoning.reason`."""
        return reasoning.reason(trajectory, action, next_state, reward)

    def facts(self, trajectory: Trajectory) -> set[Fact]:
        """What the last state asserts by itself."""
        return state_facts(trajectory.states[-1])

    def contradicts(self, claim: Fact, truth: set[Fact]) -> bool:
        """See `states.contradicts`."""
        return contradicts(claim, truth)

    def revealing(self, trajectory: Trajectory, action: str, next_state: str) -> bool:
        """True if the step shows the inside of a place, or whether a place is closed, for the first time."""
        seen = read_state(next_state)
        if seen.event != "at":
            return False
        known = learn(trajectory)
        return seen.place not in known.contents if seen.door != "closed" else not known.known(seen.place)

    def well_formed(self, action: str) -> bool:
        """See `knowledge.well_formed`."""
        return well_formed(action)

    def refused(self, next_state: str) -> bool:
        """True if the engine said that nothing happens."""
        return read_state(next_state).event == "failed"

    def contradiction(self, trajectory: Trajectory, next_state: str) -> str:
        """See `coherence.contradiction`."""
        return coherence.contradiction(trajectory, next_state)

    def premise(self, trajectory: Trajectory) -> str:
        """See `premise.premise`."""
        return premise.premise(trajectory)

    def objection(self, task: Task, premise: str) -> str:
        """See `premise.objection`."""
        return objection(task, premise)

    def progress(self, trajectory: Trajectory) -> float:
        """See `progress.progress`."""
        return progress(trajectory)

    def embody(self, dreamed: Trajectory) -> Task:
        """See `embody.embody`."""
        return embody(dreamed)

    def unseen(self, task: Task) -> bool:
        """True if no training game has this floor plan."""
        parts = task.id.split("/")
        return "valid_unseen" in parts or (
            len(parts) > 2 and parts[2].isdigit() and unseen_floor(int(parts[2]))
        )

    def feasible(self, task: Task) -> str:
        """Why a generated task is malformed or hopeless, judged by its text and its room; "" if it is
        neither.
        """
        goal = read_goal(task.instruction)
        if goal is None:
            return "follows no template"
        kinds = {kind(name) for name in read_state(task.initial_state).contents}
        if goal.target not in PORTABLE - kinds or not any(goal.target in HOLDS[place] for place in kinds):
            return "no such object"
        if goal.lamp:
            return "" if goal.lamp in LAMPS else "no such lamp"
        if goal.parent not in kinds:
            return "the room lacks the place"
        return (
            ""
            if (goal.target, goal.parent) in goals(goal.family, kinds, {goal.target})
            else "cannot be done in this room"
        )


def _official_root() -> Path:
    root = os.environ.get("ALFWORLD_DATA", "")
    if not root or not Path(root).is_dir():
        raise EnvironmentFailure(
            f"ALFWORLD_DATA is {root!r}.",
            "Expected the folder of the official games.",
            "Run `alfworld-download`, or set environment.games=generated.",
        )
    return Path(root)


def _game(spec: str) -> World | Path:
    try:
        values = json.loads(spec)
    except ValueError:
        values = None
    if not isinstance(values, dict) or "path" not in values:
        return World.from_json(spec)  # which says what is wrong with it
    root = _official_root().resolve()
    path = (root / values["path"]).resolve()
    if not path.is_relative_to(root):
        raise EnvironmentFailure(
            f"The game {values['path']!r} lies outside {root}.", "Expected a path below $ALFWORLD_DATA."
        )
    return path


class AlfworldEnvironment:
    """The real world of a batch of tasks; counts its interactions and refuses to exceed its budget."""

    def __init__(self, workers: int, budget: int | None = None, *, cached: bool = True) -> None:
        self.interactions = 0
        self.budget = budget
        self._workers = Workers(workers, cached=cached)
        self._mappers: list[StateMapper] = []
        self._states: list[str] = []
        self.admissible: list[tuple[str, ...]] = []

    def reset(self, tasks: Sequence[Task]) -> list[str]:
        """Load and start each task's game.

        Raises:
            EnvironmentFailure: a game cannot be loaded, or a task was made up and has no world of its own.
        """
        for task in tasks:
            if task.generated:
                raise EnvironmentFailure(
                    f"The task {task.id} was generated: it has no real world.",
                    next_step="Embody a dreamed episode of it.",
                )
        seen = self._workers.load({row: _game(task.spec) for row, task in enumerate(tasks)})
        self._mappers = [StateMapper() for _ in tasks]
        self._states = [self._mappers[row].initial(seen[row].text) for row in range(len(tasks))]
        self.admissible = [seen[row].admissible for row in range(len(tasks))]
        return list(self._states)

    def step(self, actions: Sequence[str | None]) -> list[Step | None]:
        """One step for each row with an action.

        Raises:
            EnvironmentFailure: the budget of interactions does not allow these steps.
        """
        commands = {row: action for row, action in enumerate(actions) if action is not None}
        self.interactions = spend(self.interactions, len(commands), self.budget)
        answers = self._workers.step(commands)
        return [self._answer(row, answers[row]) if row in answers else None for row in range(len(actions))]

    def probe(self, actions: Sequence[Sequence[str]]) -> list[list[Step]]:
        """What each of a row's actions would lead to, executed in a fork of its game; the rows stay where
        they are.

        Raises:
            EnvironmentFailure: the budget of interactions does not allow these steps.
        """
        self.interactions = spend(self.interactions, sum(map(len, actions)), self.budget)
        answers = self._workers.probe({row: list(tried) for row, tried in enumerate(actions) if tried})
        return [
            [self._alternative(row, seen) for seen in answers.get(row, [])] for row in range(len(actions))
        ]

    def _alternative(self, row: int, seen: Any) -> Step:
        if isinstance(seen, str):
            return Step(self._states[row], 0.0, True, {"failed": seen})
        return Step(
            copy.deepcopy(self._mappers[row])(seen.text),
            float(seen.won),
            bool(seen.won),
            {"observation": seen.text},
        )

    def _answer(self, row: int, seen: object) -> Step:
        if isinstance(seen, str):
            return Step(self._states[row], 0.0, True, {"failed": seen})
        self._states[row] = self._mappers[row](seen.text)  # type: ignore[attr-defined]
        self.admissible[row] = seen.admissible  # type: ignore[attr-defined]
        won = bool(seen.won)  # type: ignore[attr-defined]
        info = {"observation": seen.text, "admissible": seen.admissible}  # type: ignore[attr-defined]
        return Step(self._states[row], 1.0 if won else 0.0, won, info)

    def close(self) -> None:
        """End the worker processes."""
        self._workers.close()
