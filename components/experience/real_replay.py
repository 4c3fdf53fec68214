"""Is a dreamed episode a real one? It is replayed action by action in the real engine.

The real world of the replay is the one that the dream described (`Adapter.embody`), so a dream may invent
what no one has seen yet, but must draw the right conclusions from it. A dream that contradicts itself has no
such world: none of its states counts as confirmed, and neither does its success. The real steps spent here
are check interactions: counted, but not training.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from components.environments.protocol import Adapter, side_by_side
from components.environments.retry import play_whole
from components.errors import EnvironmentFailure
from components.records import Task, Trajectory


@dataclass(frozen=True)
class Replay:
    """One dreamed episode in the real engine.

    `confirmed`: the real engine rewarded the last action and nothing before it where the dream ended in
    success, and nothing where it did not. `same` tells of each dreamed state whether the real one is the same
    text. `reason` says why the end was denied. `playable` is False where no world could be built.
    """

    dreamed: Trajectory
    confirmed: bool
    same: tuple[bool, ...]
    reason: str = ""
    real_states: tuple[str, ...] = ()
    real_rewards: tuple[float, ...] = ()
    playable: bool = True

    @property
    def agreeing(self) -> int:
        """States that are the same text."""
        return sum(self.same)

    @property
    def compared(self) -> int:
        """States in all."""
        return len(self.same)


def replay(adapter: Adapter, dreamed: Sequence[Trajectory]) -> tuple[list[Replay], int]:
    """Replay each dreamed episode; the replays in the same order, and the real steps spent."""
    worlds: dict[int, Task] = {}
    results: dict[int, Replay] = {}
    for number, episode in enumerate(dreamed):
        try:
            worlds[number] = adapter.embody(episode)
        except EnvironmentFailure as failure:
            results[number] = Replay(
                episode,
                False,
                (False,) * len(episode.steps),
                f"contradicts itself: {failure}",
                playable=False,
            )
    environment = adapter.open()
    try:
        results |= replay_in(environment, {number: dreamed[number] for number in worlds}, worlds)
        return [results[number] for number in range(len(dreamed))], environment.interactions
    finally:
        environment.close()


def replay_in(
    environment: object, episodes: dict[int, Trajectory], worlds: dict[int, Task]
) -> dict[int, Replay]:
    """Replay each of `episodes` in `environment`, loaded with the world of its number; what infrastructure
    ended is played again.

    Raises:
        EnvironmentFailure: an episode broke in each of several tries (`again.TRIES`): nothing is said of such
            a dream.
    """

    def playing(left: list[int], _attempt: int) -> tuple[dict[int, Replay], dict[int, str]]:
        found, broken, rows = dict[int, Replay](), dict[int, str](), side_by_side(environment, len(left))
        for start in range(0, len(left), rows):
            part = _played(
                environment, episodes, {number: worlds[number] for number in left[start : start + rows]}
            )
            found, broken = found | part[0], broken | part[1]
        return found, broken

    names = {number: world.id for number, world in worlds.items()}
    return play_whole(
        names, playing, "replays of dreams", "An episode that was not played confirms and denies nothing."
    )


def _played(
    environment: object, episodes: dict[int, Trajectory], worlds: dict[int, Task]
) -> tuple[dict[int, Replay], dict[int, str]]:
    """The replays, and why infrastructure broke the others."""
    numbers, broken = list(worlds), dict[int, str]()
    environment.reset([worlds[number] for number in numbers])  # type: ignore[attr-defined]
    states: dict[int, list[str]] = {number: [] for number in numbers}
    rewards: dict[int, list[float]] = {number: [] for number in numbers}
    over: set[int] = set()
    for step in range(max(len(episodes[number].steps) for number in numbers)):
        going = [n for n in numbers if step < len(episodes[n].steps) and n not in over]
        answers = environment.step([episodes[n].steps[step].action if n in going else None for n in numbers])  # type: ignore[attr-defined]
        for place, number in enumerate(numbers):
            if answers[place] is not None:
                if "failed" in answers[place].info:
                    broken[number] = str(answers[place].info["failed"])
                states[number].append(answers[place].state)
                rewards[number].append(answers[place].reward)
                over |= {number} if answers[place].done else set()
    return {
        number: _judge(episodes[number], states[number], rewards[number])
        for number in numbers
        if number not in broken
    }, broken


def _judge(dreamed: Trajectory, states: list[str], rewards: list[float]) -> Replay:
    padded = [*states, *[""] * (len(dreamed.steps) - len(states))]
    same = tuple(step.next_state == state for step, state in zip(dreamed.steps, padded, strict=True))
    won_at = next((place for place, reward in enumerate(rewards) if reward > 0.5), None)
    last = len(dreamed.steps) - 1 if dreamed.success else None
    denied = (
        "the real engine denies it"
        if won_at is None
        else f"was won at step {won_at}, not {'at all' if last is None else last}"
    )
    return Replay(
        dreamed, won_at == last, same, "" if won_at == last else denied, tuple(states), tuple(rewards)
    )
