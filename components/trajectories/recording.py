"""Record offline trajectories in the real environment: expert, noisy, near-miss and random behaviour.

Deterministic: the same tasks, behaviours and seed give the same records in the same order, whatever the
number of workers.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from components.environments.protocol import Adapter, Behaviour, Environment, side_by_side
from components.environments.retry import play_whole
from components.environments.text_world.user_code import users_call
from components.errors import EnvironmentFailure
from components.records import REAL, Task, Trajectory, Transition

BEHAVIOURS = ("expert", "noisy", "near_miss", "random")


@dataclass(frozen=True)
class Episode:
    """One episode to be played: which task, who acts, with which seed."""

    task: Task
    behaviour: str
    seed: int

    @property
    def id(self) -> str:
        """Name of the episode, unique within a data set."""
        return f"{self.task.id}/{self.behaviour}-{self.seed}"


def plan(tasks: Sequence[Task], counts: dict[str, int], seed: int) -> list[Episode]:
    """Every task's episodes: `counts` says how many of each behaviour."""
    return [
        Episode(task, name, seed * 1000 + n)
        for task in tasks
        for name in BEHAVIOURS
        for n in range(counts.get(name, 0))
    ]


def collect(
    adapter: Adapter,
    episodes: Sequence[Episode],
    max_steps: int,
    *,
    rows: int = 32,
    on_batch: Callable[[int, int], None] | None = None,
) -> list[Trajectory]:
    """Play all episodes; trajectories in the order of `episodes`.

    Args:
        max_steps: step limit of an episode.
        rows: episodes played side by side, where the world has room.
        on_batch: called with (episodes done, episodes in all).

    What infrastructure broke is played again: who acts draws by the seed of the episode, so the same comes of
    it.

    Raises:
        EnvironmentFailure: an episode broke in each of several tries (`again.TRIES`).
    """
    environment, done = adapter.open(), list[Trajectory]()
    rows = side_by_side(environment, rows)
    try:
        for start in range(0, len(episodes), rows):
            batch = episodes[start : start + rows]
            playing = functools.partial(_play, adapter, environment, batch, max_steps)
            names = {row: episode.id for row, episode in enumerate(batch)}
            done += play_whole(
                names, playing, "episodes", "Data with holes could not be made again."
            ).values()
            if on_batch:
                on_batch(min(start + rows, len(episodes)), len(episodes))
    finally:
        environment.close()
    return done


def _play(
    adapter: Adapter,
    environment: Environment,
    episodes: Sequence[Episode],
    max_steps: int,
    places: Sequence[int],
    _attempt: int,
) -> tuple[dict[int, Trajectory], dict[int, str]]:
    """By their places: the episodes, and why infrastructure broke the others."""
    batch = [episodes[place] for place in places]
    environment.reset([episode.task for episode in batch])
    actors = [adapter.behaviour(episode.behaviour, episode.task, episode.seed) for episode in batch]
    played = [Trajectory(episode.task) for episode in batch]
    admissible: list[Sequence[str]] = list(environment.admissible)  # type: ignore[attr-defined]
    alive, broken = set(range(len(batch))), dict[int, str]()
    for step in range(max_steps):
        if not alive:
            break
        actions = {row: _action(actors[row], batch[row], played[row], admissible[row]) for row in alive}
        answers = environment.step([actions.get(row) for row in range(len(batch))])
        for row in sorted(alive):
            answer = answers[row]
            assert answer is not None
            if "failed" in answer.info:
                broken[row] = str(answer.info["failed"])
            with users_call(f"The adapter's reason() about {actions[row]!r:.80}"):
                reasoning = adapter.reason(played[row], actions[row], answer.state, answer.reward)
            transition = Transition(
                task_id=batch[row].task.id,
                episode_id=batch[row].id,
                step=step,
                state=played[row].states[-1],
                action=actions[row],
                next_state=answer.state,
                reward=answer.reward,
                done=answer.done,
                reasoning=reasoning,
                source=REAL,
                behaviour=batch[row].behaviour,
            )
            played[row] = Trajectory(played[row].task, (*played[row].steps, transition))
            admissible[row] = answer.info.get("admissible", ())
            if answer.done:
                alive.discard(row)
    whole = {places[row]: trajectory for row, trajectory in enumerate(played) if row not in broken}
    return whole, {places[row]: reason for row, reason in broken.items()}


def _action(actor: Behaviour, episode: Episode, played: Trajectory, admissible: Sequence[str]) -> str:
    """What who acts does next. Raises EnvironmentFailure if that is no pair of thought and action."""
    with users_call(f"The behaviour {episode.behaviour} in {episode.task.id}"):
        answer = actor(played, admissible)
    if not isinstance(answer, tuple) or len(answer) != 2 or not isinstance(answer[1], str):
        found = f"The behaviour {episode.behaviour} gave {answer!r:.100} in {episode.task.id}."
        raise EnvironmentFailure(
            found, "Expected a thought and an action, both text.", "Correct the adapter's behaviour."
        )
    return answer[1]
