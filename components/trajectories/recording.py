"""Record offline trajectories in the real environment: expert, noisy, near-miss and random behaviour.

It is deterministic: the same tasks, behaviours and seed give the same records in the same order, for any
number of workers.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from components.environments.capabilities import Adapter
from components.environments.protocol import Behaviour, Environment, Step, concurrent_rows
from components.environments.retry import broken_error, play_repeatedly
from components.environments.text_world.user_code import users_call
from components.errors import EnvironmentFailure
from components.records import REAL, Task, Trajectory, Transition
from components.trajectories.unfinished_collection import UnfinishedCollection

MOST_BROKEN = 10
"""Episodes that broke in every attempt after which a collection with `unfinished` plays no others."""
BEHAVIOURS = ("expert", "noisy", "near_miss", "random")


@dataclass(frozen=True)
class Episode:
    """One episode to play: its task, behaviour and seed."""

    task: Task
    behaviour: str
    seed: int

    @property
    def id(self) -> str:
        """Name of the episode, unique within a data set."""
        return f"{self.task.id}/{self.behaviour}-{self.seed}"


def plan(tasks: Sequence[Task], counts: dict[str, int], seed: int) -> list[Episode]:
    """The episodes of every task.

    Args:
        counts: behaviour -> number of episodes per task.
    """
    return [
        Episode(task, name, seed * 1000 + number)
        for task in tasks
        for name in BEHAVIOURS
        for number in range(counts.get(name, 0))
    ]


def collect(
    adapter: Adapter,
    episodes: Sequence[Episode],
    max_steps: int,
    *,
    rows: int = 32,
    on_batch: Callable[[int, int], None] | None = None,
    unfinished: UnfinishedCollection | None = None,
) -> list[Trajectory]:
    """Play all episodes and return their trajectories in the order of `episodes`.

    Episodes that a failure of infrastructure broke are played again. A behaviour draws from the episode's
    seed, so the repeated episode is the same.

    Args:
        max_steps: step limit of an episode.
        rows: episodes played in parallel, if the environment allows as many.
        on_batch: called with (finished episodes, all episodes).
        unfinished: keeps finished episodes; those that it has are not played. With it, the others are played
            although an episode broke in every attempt, until `MOST_BROKEN` have.

    Raises:
        EnvironmentFailure: an episode broke in every attempt.
    """
    most_broken = 1 if unfinished is None else MOST_BROKEN
    environment = adapter.open()
    finished = {} if unfinished is None else dict(unfinished.finished)
    missing = [episode for episode in episodes if episode.id not in finished]
    broken: dict[str, str] = {}
    rows = concurrent_rows(environment, rows)
    try:
        for start in range(0, len(missing), rows):
            batch = missing[start : start + rows]
            play = functools.partial(_play, adapter, environment, batch, max_steps, unfinished=unfinished)
            played, reasons = play_repeatedly(list(range(len(batch))), play)
            finished |= {batch[index].id: trajectory for index, trajectory in played.items()}
            broken |= {batch[index].id: reason for index, reason in reasons.items()}
            if len(broken) >= most_broken:
                break
            if on_batch:
                on_batch(len(episodes) - len(missing) + min(start + rows, len(missing)), len(episodes))
    finally:
        environment.close()
    if broken:
        raise _broken_episodes(broken, len(episodes), unfinished)
    return [finished[episode.id] for episode in episodes]


def _broken_episodes(
    reasons: dict[str, str], count: int, unfinished: UnfinishedCollection | None
) -> EnvironmentFailure:
    """Return the error for episodes that broke in every attempt."""
    expected = "Data with missing episodes could not be made again."
    if unfinished is None:
        return broken_error(reasons, count, "episodes", expected)
    kept = f"{len(unfinished.finished)} finished ones are kept in {unfinished.directory}"
    return broken_error(
        reasons,
        count,
        "episodes",
        f"{expected} {kept}; these broke: {', '.join(reasons)}.",
        "Mend the world (`dreamgym doctor` plays one episode), then type the same again: only missing "
        "episodes are played. Or leave these tasks out with another data.seed or data.train_tasks, which "
        "plays all again.",
    )


def _play(
    adapter: Adapter,
    environment: Environment,
    episodes: Sequence[Episode],
    max_steps: int,
    indices: Sequence[int],
    _attempt: int,
    *,
    unfinished: UnfinishedCollection | None,
) -> tuple[dict[int, Trajectory], dict[int, str]]:
    """Play the episodes at `indices`, and keep the complete ones in `unfinished`.

    Returns:
        (index -> complete episode, index -> reason why infrastructure broke the episode)
    """
    batch = [episodes[index] for index in indices]
    environment.reset([episode.task for episode in batch])
    actors = [adapter.behaviour(episode.behaviour, episode.task, episode.seed) for episode in batch]
    trajectories = [Trajectory(episode.task) for episode in batch]
    admissible: list[Sequence[str]] = list(environment.admissible)  # type: ignore[attr-defined]
    open_rows = set(range(len(batch)))
    failures: dict[int, str] = {}
    for _ in range(max_steps):
        if not open_rows:
            break
        replies = {
            row: _reply(actors[row], batch[row], trajectories[row], admissible[row]) for row in open_rows
        }
        actions = [replies[row][1] if row in replies else None for row in range(len(batch))]
        steps = environment.step(actions)
        for row in sorted(open_rows):
            step = steps[row]
            assert step is not None
            if "failed" in step.info:
                failures[row] = str(step.info["failed"])
            transition = _transition(adapter, batch[row], trajectories[row], replies[row], step)
            trajectories[row] = trajectories[row].with_step(transition)
            admissible[row] = step.info.get("admissible", ())
            if step.done:
                open_rows.discard(row)
    complete = {
        indices[row]: trajectory for row, trajectory in enumerate(trajectories) if row not in failures
    }
    if unfinished is not None:
        unfinished.add(list(complete.values()))
    return complete, {indices[row]: reason for row, reason in failures.items()}


def _transition(
    adapter: Adapter, episode: Episode, history: Trajectory, reply: tuple[str, str], step: Step
) -> Transition:
    """The record of one step, with the behaviour's thought and the adapter's reasoning."""
    thought, action = reply
    with users_call(f"The adapter's reason() about {action!r:.80}"):
        reasoning = adapter.reason(history, action, step.state, step.reward)
    return Transition(
        task_id=episode.task.id,
        episode_id=episode.id,
        step=len(history.steps),
        state=history.states[-1],
        action=action,
        next_state=step.state,
        reward=step.reward,
        done=step.done,
        reasoning=reasoning,
        source=REAL,
        behaviour=episode.behaviour,
        thought=thought,
    )


def with_reasoning(adapter: Adapter, trajectory: Trajectory) -> Trajectory:
    """The trajectory with the adapter's reasoning in each step."""
    steps = [
        replace(
            step,
            reasoning=adapter.reason(trajectory.up_to(step.step), step.action, step.next_state, step.reward),
        )
        for step in trajectory.steps
    ]
    return replace(trajectory, steps=tuple(steps))


def _reply(
    actor: Behaviour, episode: Episode, history: Trajectory, admissible: Sequence[str]
) -> tuple[str, str]:
    """The behaviour's thought, "" if it has none, and its action.

    Raises:
        EnvironmentFailure: the behaviour does not return a thought and an action.
    """
    with users_call(f"The behaviour {episode.behaviour} in {episode.task.id}"):
        answer = actor(history, admissible)
    if not isinstance(answer, tuple) or len(answer) != 2 or not all(isinstance(text, str) for text in answer):
        raise EnvironmentFailure(
            f"The behaviour {episode.behaviour} gave {answer!r:.100} in {episode.task.id}.",
            "Expected a thought and an action, both text.",
            "Correct the adapter's behaviour.",
        )
    return answer[0], answer[1]
