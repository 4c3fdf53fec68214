"""The world under test: its adapter, its environment, some training tasks, and the episodes played so far."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from components.config import Config
from components.environments.capabilities import Adapter
from components.environments.contract.finding import Broken
from components.environments.protocol import RealEnvironment, Step
from components.records import Task, Trajectory, Transition

LISTED_TASKS = 12
"""Tasks of a split that a promise about task lists asks for, at most."""


@dataclass
class Subject:
    """A world under test."""

    adapter: Adapter
    world: RealEnvironment
    tasks: list[Task]
    config: Config
    opening: float = 0.0
    """Seconds that listing the tasks and opening the environment took."""
    played: dict[str, list[Trajectory]] = field(default_factory=dict)
    """Behaviour -> its episodes, one a task."""

    def play(self, name: str, seed: int = 0) -> list[Trajectory]:
        """Play the tasks by the behaviour `name`, up to the step limit. Raises Broken if a step failed."""
        self.world.reset(self.tasks)
        actors = [self.adapter.behaviour(name, task, seed) for task in self.tasks]
        episodes = [Trajectory(task) for task in self.tasks]
        admissible = self._admissible()
        for _ in range(self.config.environment.max_steps):
            rows = zip(actors, episodes, admissible, strict=True)
            actions = [None if _is_over(episode) else act(episode, can)[1] for act, episode, can in rows]
            if all(action is None for action in actions):
                break
            for row, (action, answer) in enumerate(zip(actions, self.world.step(actions), strict=True)):
                if action is None or answer is None:
                    continue
                episodes[row] = _extended(episodes[row], row, name, action, answer)
                admissible[row] = answer.info.get("admissible", ())
        return episodes

    def episodes(self) -> list[Trajectory]:
        """Return all episodes played so far."""
        return [episode for episodes in self.played.values() for episode in episodes]

    def _admissible(self) -> list[Sequence[str]]:
        require(
            isinstance(self.world, RealEnvironment),
            "The environment has no attribute admissible.",
            "It lists for each row what can be done; () will do.",
        )
        return list(self.world.admissible)


def require(is_kept: object, problem: str, *next_step: str) -> None:
    """Raise Broken with `problem` and `next_step` unless `is_kept`."""
    if not is_kept:
        raise Broken(problem, *next_step)


def _is_over(episode: Trajectory) -> bool:
    return bool(episode.steps) and episode.steps[-1].done


def _extended(episode: Trajectory, row: int, behaviour: str, action: str, answer: Step) -> Trajectory:
    """Return `episode` with one more step. Raises Broken if the step failed."""
    if "failed" in answer.info:
        raise Broken(
            f"{behaviour} did {action!r} in {episode.task.id}, and the world failed: {answer.info['failed']}"
        )
    step = Transition(
        episode.task.id,
        f"e{row}",
        len(episode.steps),
        episode.states[-1],
        action,
        answer.state,
        answer.reward,
        answer.done,
    )
    return episode.with_step(step)
