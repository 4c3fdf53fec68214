"""Is a dreamed success a real one? Dreamed episodes are replayed action by action in the real engine.

The real world of the replay is the one that the dream described (`Adapter.embody`), so a dream may invent what no one has
seen yet, but must draw the right conclusions from it. A dream that contradicts itself has no such world and counts as not
confirmed. The real steps spent here are check interactions: counted, but not training.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from components.environments.protocol import Adapter
from components.errors import EnvironmentFailure
from components.records import Task, Trajectory


@dataclass(frozen=True)
class Replay:
    """One dreamed episode in the real engine.

    `confirmed`: the real engine rewarded the last action, as the dream did (for a dreamed success), and nothing before it.
    `agreeing` of `compared` states were the same text. `reason` says why a success was denied.
    """

    dreamed: Trajectory
    confirmed: bool
    agreeing: int
    compared: int
    reason: str = ""
    real_states: tuple[str, ...] = ()


def replay(adapter: Adapter, dreamed: Sequence[Trajectory]) -> tuple[list[Replay], int]:
    """Replay each dreamed success; the replays in the same order, and the real steps spent."""
    worlds: dict[int, Task] = {}
    results: dict[int, Replay] = {}
    for number, episode in enumerate(dreamed):
        try:
            worlds[number] = adapter.embody(episode)
        except EnvironmentFailure as failure:
            results[number] = Replay(episode, False, 0, len(episode.steps), f"contradicts itself: {failure}")
    environment = adapter.open()
    try:
        results |= replay_in(environment, {number: dreamed[number] for number in worlds}, worlds)
        return [results[number] for number in range(len(dreamed))], environment.interactions
    finally:
        environment.close()


def replay_in(environment: object, episodes: dict[int, Trajectory], worlds: dict[int, Task]) -> dict[int, Replay]:
    """Replay each of `episodes` in `environment`, loaded with the world of its number."""
    if not worlds:
        return {}
    numbers = list(worlds)
    environment.reset([worlds[number] for number in numbers])  # type: ignore[attr-defined]
    states: dict[int, list[str]] = {number: [] for number in numbers}
    rewards: dict[int, list[float]] = {number: [] for number in numbers}
    over: set[int] = set()
    for step in range(max(len(episode.steps) for episode in episodes.values())):
        going = [n for n in numbers if step < len(episodes[n].steps) and n not in over]
        answers = environment.step([episodes[n].steps[step].action if n in going else None for n in numbers])  # type: ignore[attr-defined]
        for place, number in enumerate(numbers):
            if answers[place] is not None:
                states[number].append(answers[place].state)
                rewards[number].append(answers[place].reward)
                over |= {number} if answers[place].done else set()
    return {number: _judge(episodes[number], states[number], rewards[number]) for number in numbers}


def _judge(dreamed: Trajectory, states: list[str], rewards: list[float]) -> Replay:
    agreeing = sum(step.next_state == state for step, state in zip(dreamed.steps, states, strict=False))
    won_at = next((place for place, reward in enumerate(rewards) if reward > 0.5), None)
    last = len(dreamed.steps) - 1
    reason = "" if won_at == last else "the real engine denies it" if won_at is None else f"was won at step {won_at}, not {last}"
    return Replay(dreamed, won_at == last, agreeing, len(dreamed.steps), reason, tuple(states))
