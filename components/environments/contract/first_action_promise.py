"""The promise that a task's first step does not depend on chance, also where one action alone reveals it.

What a world draws without its seed may show in the right action only: the coin in one of twenty boxes. So the
listed actions are tried one by one, each after a fresh start, and more than once.
"""

from __future__ import annotations

import time
from collections.abc import Sequence

from components.environments.contract.finding import Broken, Doubtful
from components.environments.contract.subject import Subject, require
from components.records import Task

MOST_ACTIONS = 64
"""Most first actions of a task that are tried; of a longer list as many, evenly spread."""
STARTS = 128
"""Starts of each task, of which every action has at least two."""
MOST_SECONDS = 30.0
"""Time after which no other action is tried, whatever the world's pace."""
Answer = tuple[str, float, bool]


def first_steps_repeat(it: Subject) -> str:
    """The same first action gives the same answer after every start."""
    it.world.reset(it.tasks)
    actions = [
        _first_actions(it, task, listed)
        for task, listed in zip(it.tasks, list(it.world.admissible), strict=True)
    ]
    rounds = max(2, STARTS // max(1, *map(len, actions)))
    answers: list[dict[str, Answer]] = [{} for _ in it.tasks]
    started = time.perf_counter()
    starts = 0
    for place, repeats in _order(max(map(len, actions)), rounds):
        if time.perf_counter() - started > MOST_SECONDS:
            break
        chosen = [own[place] if place < len(own) else None for own in actions]
        for _ in range(repeats):
            _compare(it, chosen, answers)
            starts += 1
    is_won = any(episode.success for episode in it.episodes()) or any(
        reward > 0 for own in answers for _, reward, _ in own.values()
    )
    tried = (
        f"{sum(map(len, answers))} first actions of {len(it.tasks)} tasks in {starts} starts, "
        f"{time.perf_counter() - started:.1f} s"
    )
    if not is_won:
        raise Doubtful(
            f"No win was seen: no played episode won, and none of {tried}.",
            "What a world draws without its seed and shows in a win alone is not found then. Record "
            "solutions, or let an expert play.",
        )
    return tried


def _first_actions(it: Subject, task: Task, listed: Sequence[str]) -> list[str]:
    """Return the actions to try in a task: those that its start lists, else those of its played episodes."""
    played = [step.action for episode in it.episodes() if episode.task == task for step in episode.steps]
    actions = list(dict.fromkeys(listed or played))
    if len(actions) <= MOST_ACTIONS:
        return actions
    return [actions[number * len(actions) // MOST_ACTIONS] for number in range(MOST_ACTIONS)]


def _order(count: int, rounds: int) -> list[tuple[int, int]]:
    """Return (place of an action, number of starts): every action twice, then again in each further round."""
    return [(place, 2) for place in range(count)] + [
        (place, 1) for _ in range(rounds - 2) for place in range(count)
    ]


def _compare(it: Subject, chosen: Sequence[str | None], answers: list[dict[str, Answer]]) -> None:
    """Start all tasks, do one action in each, and compare the answers with the earlier ones.

    Raises:
        Broken: an answer differs, or a step failed.
    """
    it.world.reset(it.tasks)
    for task, action, own, answer in zip(it.tasks, chosen, answers, it.world.step(chosen), strict=True):
        if action is None or answer is None:
            continue
        if "failed" in answer.info:
            raise Broken(f"{action!r} was done in {task.id}, and the world failed: {answer.info['failed']}")
        given = (answer.state, answer.reward, answer.done)
        _require_same(task, action, own.setdefault(action, given), given)


def _require_same(task: Task, action: str, first: Answer, given: Answer) -> None:
    require(
        first == given,
        f"{task.id} answered its first action {action!r:.80} with {_shown(first)}, and after another start "
        f"with {_shown(given)}.",
        "The world draws something that the task does not decide: draw all chances from its seed.",
    )


def _shown(answer: Answer) -> str:
    state, reward, is_over = answer
    return f"{state!r:.120} (reward {reward:g}{', the end' if is_over else ''})"
