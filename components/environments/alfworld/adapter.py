"""ALFWorld as one environment of the pipeline: its tasks, its real environment, and all capabilities."""

from __future__ import annotations

import hashlib
import json
import random
from collections.abc import Sequence
from pathlib import Path

from components.config.worlds.environment_config import EnvironmentConfig
from components.environments.alfworld import (
    behaviours,
    coherence,
    embody,
    premise,
    progress,
    reasoning,
    states,
)
from components.environments.alfworld.environment import AlfworldEnvironment, official_root, read_game
from components.environments.alfworld.games import (
    FAMILIES,
    HOLDS,
    LAMPS,
    PORTABLE,
    floors,
    goals,
    initial_state,
    kind,
    make_game,
)
from components.environments.alfworld.goals import read_goal
from components.environments.alfworld.knowledge import read_knowledge, well_formed
from components.environments.alfworld.states import StateMapper, read_state
from components.environments.alfworld.workers import Workers
from components.environments.capabilities import Adapter
from components.environments.protocol import Behaviour, Fact, RealEnvironment
from components.environments.validation_split import require_split
from components.errors import EnvironmentFailure
from components.records import TEST, TRAIN, VALIDATION, Task, Trajectory

_OFFICIAL_FOLDERS = {TRAIN: ("train",), VALIDATION: ("train",), TEST: ("valid_seen", "valid_unseen")}
_VALIDATION_SHARE = 10
"""One in so many folders of official training games (a goal in a scene) is kept for validation."""
_GAMES_A_LOAD = 32
"""Official games that are opened in one batch to read their instructions."""


def is_unseen_floor(floor: int) -> bool:
    """Return True for floor plans that no training game uses: every fifth one."""
    return floor % 5 == 0


def is_validation_folder(name: str) -> bool:
    """Return True for a folder of official training games that no training task is drawn from.

    `name` is the folder's name: a goal and a scene.
    """
    return int(hashlib.sha256(name.encode()).hexdigest()[:8], 16) % _VALIDATION_SHARE == 0


class AlfworldAdapter(Adapter):
    """The adapter of ALFWorld, for generated games and for the official ones."""

    name = "alfworld"
    splits = (TRAIN, VALIDATION, TEST)

    def __init__(self, config: EnvironmentConfig) -> None:
        self.config = config

    def describe_world(self) -> str:
        """Return what ALFWorld's rooms are."""
        return (
            "A household in text: a room with numbered receptacles, some of which have to be opened, and "
            "objects in and on them. The agent carries one object at a time."
        )

    def describe_actions(self) -> str:
        """Return the form of each action."""
        return (
            "Actions: go to R, open R, close R, take O from R, move O to R, heat O with R, cool O with R, "
            "clean O with R, use O, examine O, look, inventory. R is a receptacle such as desk 1, O an "
            "object such as mug 2."
        )

    @property
    def notice(self) -> str:
        """That scores of generated games are not those of the benchmark; empty for the official games."""
        if self.config.games == "official":
            return ""
        return (
            "Games are generated from the alfworld package's floor plans: scores are not ALFWorld "
            "benchmark scores."
        )

    def tasks(self, split: str, count: int, seed: int) -> list[Task]:
        """Return `count` different tasks, families in turn.

        In the splits validation and test every other generated game has an unseen floor plan. Generated games
        of each split come from a random stream of their own. Official validation games are training games in
        folders that no training task comes from.

        Raises:
            EnvironmentFailure: an unknown split, or fewer official games on disk than asked for.
        """
        require_split(split, self.splits)
        if self.config.games == "official":
            return self._official_tasks(split, count, seed)
        tasks: dict[str, Task] = {}
        index = 0
        while len(tasks) < count:
            task = self._generated_task(split, index, seed)
            tasks.setdefault(task.id, task)
            index += 1
        return list(tasks.values())

    def _generated_task(self, split: str, index: int, seed: int) -> Task:
        family = FAMILIES[index % len(FAMILIES)]
        rng = random.Random(f"{split}/{self.config.seed}/{seed}/{index}")
        is_unseen = split != TRAIN and index // len(FAMILIES) % 2 == 1
        floor = rng.choice([floor for floor in floors(family) if is_unseen_floor(floor) == is_unseen])
        game = make_game(family, floor, rng.getrandbits(48), self.config.receptacles, self.config.objects)
        spec = game.to_json()
        digest = hashlib.sha256(spec.encode()).hexdigest()[:12]
        return Task(
            f"alfworld/{family}/{floor}/{digest}",
            self.name,
            split,
            game.instruction,
            initial_state(game),
            family,
            spec,
        )

    def _official_tasks(self, split: str, count: int, seed: int) -> list[Task]:
        root = official_root()
        paths = sorted(
            path
            for folder in _OFFICIAL_FOLDERS[split]
            for path in (root / "json_2.1.1" / folder).glob("**/game.tw-pddl")
        )
        if split != TEST:
            is_validation = split == VALIDATION
            paths = [path for path in paths if is_validation_folder(path.parent.parent.name) == is_validation]
        if len(paths) < count:
            raise EnvironmentFailure(
                f"{root} holds {len(paths)} official games of the split {split}.",
                f"Expected at least {count}.",
                "Run `alfworld-download`.",
            )
        chosen_paths = sorted(random.Random(seed).sample(paths, count))
        return self._read_official_tasks(split, [str(path.relative_to(root)) for path in chosen_paths])

    def _read_official_tasks(self, split: str, paths: list[str]) -> list[Task]:
        """Return the tasks of the games at `paths`; each game is started once to read its first state."""
        tasks = []
        workers = Workers(self.config.workers)
        try:
            for start in range(0, len(paths), _GAMES_A_LOAD):
                batch = paths[start : start + _GAMES_A_LOAD]
                specs = [json.dumps({"path": path}) for path in batch]
                observations = workers.load(dict(enumerate(map(read_game, specs))))
                for row, observation in sorted(observations.items()):
                    tasks.append(self._official_task(split, batch[row], specs[row], observation.text))
        finally:
            workers.close()
        return tasks

    def _official_task(self, split: str, path: str, spec: str, introduction: str) -> Task:
        instruction = introduction.split("Your task is to: ")[1].rstrip(". ")
        goal = read_goal(instruction)
        family = goal.family if goal else Path(path).parts[2].split("-")[0]
        state = StateMapper().initial(introduction)
        return Task(f"alfworld/{path}", self.name, split, instruction, state, family, spec)

    def open(
        self, budget: int | None = None, *, workers: int | None = None, stock: bool = False
    ) -> RealEnvironment:
        """Open the real engine in worker processes, with caches unless `stock` is True."""
        return AlfworldEnvironment(workers or self.config.workers, budget, cached=not stock)

    def behaviour(self, name: str, task: Task, seed: int) -> Behaviour:
        """See `behaviours.make_behaviour`."""
        return behaviours.make_behaviour(name, task, seed)

    def well_formed(self, action: str) -> bool:
        """See `knowledge.well_formed`."""
        return well_formed(action)

    def refused(self, next_state: str) -> bool:
        """Return True if the engine said that nothing happens."""
        return read_state(next_state).event == "failed"

    def reflect(self, trajectory: Trajectory, alternatives: Sequence[tuple[str, str]], thought: str) -> str:
        """See `reasoning.reflect`."""
        return reasoning.reflect(trajectory, alternatives, thought)

    def reason(self, trajectory: Trajectory, action: str, next_state: str, reward: float) -> str:
        """See `reasoning.reason`."""
        return reasoning.reason(trajectory, action, next_state, reward)

    def facts(self, trajectory: Trajectory) -> set[Fact]:
        """Return what the last state asserts by itself."""
        return states.state_facts(trajectory.states[-1])

    def contradicts(self, claim: Fact, truth: set[Fact]) -> bool:
        """See `states.contradicts`."""
        return states.contradicts(claim, truth)

    def contradiction(self, trajectory: Trajectory, next_state: str) -> str:
        """See `coherence.contradiction`."""
        return coherence.contradiction(trajectory, next_state)

    def revealing(self, trajectory: Trajectory, action: str, next_state: str) -> bool:
        """Return True if the step is the first to show the inside of a place, or that it is closed."""
        parsed = read_state(next_state)
        if parsed.event != "at":
            return False
        knowledge = read_knowledge(trajectory)
        if parsed.door == "closed":
            return not knowledge.is_known(parsed.place)
        return parsed.place not in knowledge.contents

    def premise(self, trajectory: Trajectory) -> str:
        """See `premise.premise`."""
        return premise.premise(trajectory)

    def objection(self, task: Task, premise_text: str) -> str:
        """See `premise.objection`."""
        return premise.objection(task, premise_text)

    def progress(self, trajectory: Trajectory) -> float:
        """See `progress.progress`."""
        return progress.progress(trajectory)

    def embody(self, dreamed: Trajectory) -> Task:
        """See `embody.embody`."""
        return embody.embody(dreamed)

    def unseen(self, task: Task) -> bool:
        """Return True if no training game has this floor plan."""
        parts = task.id.split("/")
        if "valid_unseen" in parts:
            return True
        return len(parts) > 2 and parts[2].isdigit() and is_unseen_floor(int(parts[2]))

    def feasible(self, task: Task) -> str:
        """Return why a generated task is malformed or cannot be solved, by its text and its room; else ""."""
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
        if (goal.target, goal.parent) in goals(goal.family, kinds, {goal.target}):
            return ""
        return "cannot be done in this room"
