"""Replay of dreamed episodes in the real engine: does the real world confirm what the dream said?

The replay runs in the world that the dream described (`Adapter.embody`). So a dream may invent what nobody
has seen yet, but must draw the right conclusions from it. A dream that contradicts itself has no such world:
neither its states nor its success count as confirmed. The real steps spent here are check interactions. They
are counted. They train the experience model of a further round, and nothing before it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from components.environments.capabilities import Adapter
from components.environments.protocol import Environment, concurrent_rows
from components.environments.retry import play_whole
from components.errors import EnvironmentFailure
from components.records import REAL, Task, Trajectory, Transition


@dataclass(frozen=True)
class Replay:
    """One dreamed episode in the real engine.

    Attributes:
        confirmed: of a dreamed success: the real engine rewarded the last action and none before it. Of any
            other episode: it rewarded no action.
        same: for each dreamed state, whether the real one is the same text.
        reason: why the end was denied; "" if it was confirmed.
        playable: False where no world could be built.
        ended: whether the real engine ended the episode.
    """

    dreamed: Trajectory
    confirmed: bool
    same: tuple[bool, ...]
    reason: str = ""
    real_states: tuple[str, ...] = ()
    real_rewards: tuple[float, ...] = ()
    playable: bool = True
    ended: bool = False

    @property
    def agreeing_states(self) -> int:
        """Number of states that are the same text."""
        return sum(self.same)

    @property
    def compared(self) -> int:
        """Number of all states."""
        return len(self.same)


def replay(adapter: Adapter, dreamed: Sequence[Trajectory]) -> tuple[list[Replay], int]:
    """Replay each dreamed episode.

    Returns:
        The replays in the same order, and the number of real steps.
    """
    worlds: dict[int, Task] = {}
    replays: dict[int, Replay] = {}
    for number, episode in enumerate(dreamed):
        try:
            worlds[number] = adapter.embody(episode)
        except EnvironmentFailure as failure:
            reason = f"contradicts itself: {failure}"
            replays[number] = Replay(episode, False, (False,) * len(episode.steps), reason, playable=False)
    environment = adapter.open()
    try:
        replays |= replay_in(environment, {number: dreamed[number] for number in worlds}, worlds)
        return [replays[number] for number in range(len(dreamed))], environment.interactions
    finally:
        environment.close()


def replay_in(
    environment: Environment, episodes: Mapping[int, Trajectory], worlds: Mapping[int, Task]
) -> dict[int, Replay]:
    """Replay each of `episodes` in `environment`, in the world of the same number. An episode that the
    infrastructure ended is replayed again.

    Raises:
        EnvironmentFailure: the infrastructure ended an episode in each of `retry.TRIES` tries.
    """

    def play(numbers: list[int], _attempt: int) -> tuple[dict[int, Replay], dict[int, str]]:
        replays: dict[int, Replay] = {}
        failures: dict[int, str] = {}
        rows = concurrent_rows(environment, len(numbers))
        for start in range(0, len(numbers), rows):
            batch = numbers[start : start + rows]
            batch_replays, batch_failures = _replay_batch(
                environment, episodes, {number: worlds[number] for number in batch}
            )
            replays |= batch_replays
            failures |= batch_failures
        return replays, failures

    names = {number: world.id for number, world in worlds.items()}
    return play_whole(
        names, play, "replays of dreams", "An episode that was not played confirms and denies nothing."
    )


def _replay_batch(
    environment: Environment, episodes: Mapping[int, Trajectory], worlds: Mapping[int, Task]
) -> tuple[dict[int, Replay], dict[int, str]]:
    """Replay one episode in each world, all at once.

    Returns:
        Number -> its replay, and number -> why the infrastructure ended it.
    """
    numbers = list(worlds)
    failures: dict[int, str] = {}
    environment.reset([worlds[number] for number in numbers])
    states: dict[int, list[str]] = {number: [] for number in numbers}
    rewards: dict[int, list[float]] = {number: [] for number in numbers}
    finished: set[int] = set()
    for step in range(max(len(episodes[number].steps) for number in numbers)):
        active = [n for n in numbers if step < len(episodes[n].steps) and n not in finished]
        answers = environment.step(
            [episodes[number].steps[step].action if number in active else None for number in numbers]
        )
        for number, answer in zip(numbers, answers, strict=True):
            if answer is None:
                continue
            if "failed" in answer.info:
                failures[number] = str(answer.info["failed"])
            states[number].append(answer.state)
            rewards[number].append(answer.reward)
            if answer.done:
                finished.add(number)
    replays = {
        number: _judge_replay(episodes[number], states[number], rewards[number], number in finished)
        for number in numbers
        if number not in failures
    }
    return replays, failures


def _judge_replay(dreamed: Trajectory, states: list[str], rewards: list[float], ended: bool) -> Replay:
    """Compare a dreamed episode with the real states and rewards."""
    padded = [*states, *[""] * (len(dreamed.steps) - len(states))]
    same = tuple(step.next_state == state for step, state in zip(dreamed.steps, padded, strict=True))
    real_success = next((number for number, reward in enumerate(rewards) if reward > 0.5), None)
    dreamed_success = len(dreamed.steps) - 1 if dreamed.success else None
    is_confirmed = real_success == dreamed_success
    reason = ""
    if not is_confirmed and real_success is None:
        reason = "the real engine denies it"
    elif not is_confirmed:
        expected = "at all" if dreamed_success is None else dreamed_success
        reason = f"was won at step {real_success}, not {expected}"
    return Replay(dreamed, is_confirmed, same, reason, tuple(states), tuple(rewards), ended=ended)


def replayed_steps(replays: Sequence[Replay]) -> list[Transition]:
    """The real transitions of the replays of recorded tasks, one episode a replay.

    Generated tasks are left out: they are in no file of tasks.
    """
    return [step for one in replays if not one.dreamed.task.generated for step in _real_steps(one)]


def _real_steps(replayed: Replay) -> list[Transition]:
    states = [replayed.dreamed.task.initial_state, *replayed.real_states]
    last = len(replayed.real_states) - 1
    return [
        replace(
            step,
            episode_id=f"replay/{step.episode_id}",
            state=states[step.step],
            next_state=states[step.step + 1],
            reward=replayed.real_rewards[step.step],
            done=replayed.ended and step.step == last,
            reasoning="",
            source=REAL,
            run_id="",
        )
        for step in replayed.dreamed.steps[: last + 1]
    ]
