"""Promises about the tasks that an adapter lists.

The docstring of each function is the promise as printed.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

from components.environments.contract.finding import Broken, Doubtful
from components.environments.contract.subject import LISTED_TASKS, Subject, require
from components.environments.contract.validation_check import examine_validation
from components.environments.protocol import NO_ACTION, Environment, concurrent_rows
from components.records import TEST, TRAIN, Task

COMPARED_TASKS = 24
"""Training tasks that are compared with each other by what they show, at most."""
WON_EPISODES = 8
"""Won episodes whose actions tell apart tasks that open alike, at most."""
_NUMBER = re.compile(r"\b[0-9a-f]{8,}\b|\d+")
Stream = tuple[tuple[str, float], ...]
"""The (state, reward) pairs that a task answers to a list of actions."""


def tasks_are_listed(it: Subject) -> str:
    """Tasks are different ones, named by their split, and the same for the same arguments."""
    counts = {
        TRAIN: min(LISTED_TASKS, it.config.data.train_tasks),
        TEST: min(LISTED_TASKS, it.config.evaluation.tasks),
    }
    listed = {split: it.adapter.tasks(split, count, 1) for split, count in counts.items()}
    for split, tasks in listed.items():
        _require_good_list(it, split, counts[split], tasks)
    shared = {task.id for task in listed[TRAIN]} & {task.id for task in listed[TEST]}
    require(not shared, f"Tasks are both in train and in test: {', '.join(sorted(shared)[:3])}.")
    return ", ".join(f"{count} of {split}" for split, count in counts.items())


def _require_good_list(it: Subject, split: str, count: int, tasks: Sequence[Task]) -> None:
    """Raise Broken if `tasks` is no list of `count` different tasks of `split`, or is not repeatable."""
    call = f"tasks({split!r}, {count}, 1)"
    require(isinstance(tasks, list), f"{call} gives a {type(tasks).__name__}.", "Return a list.")
    require(tasks == it.adapter.tasks(split, count, 1), f"{call} gives others when asked again.")
    require(
        len({task.id for task in tasks}) == count,
        f"{count} tasks of {split} were asked for; some are the same, or missing.",
    )
    for task in tasks:
        require(
            (task.environment, task.split) == (it.config.environment.name, split),
            f"{task.id} has environment {task.environment!r} and split {task.split!r}.",
            "Expected those asked for.",
        )
        require(task.instruction and task.initial_state, f"{task.id} has no instruction or no initial state.")


def validation_tasks_exist(it: Subject) -> str:
    """Validation tasks are there, differ from training and test tasks, and are the same for the same draw."""
    result, next_step = examine_validation(it.adapter, it.config)
    if next_step:
        raise Doubtful(f"{result}.", next_step)
    return result


def tasks_differ(it: Subject) -> str:
    """Training tasks are different ones by what they show."""
    count = min(COMPARED_TASKS, it.config.data.train_tasks)
    tasks = it.adapter.tasks(TRAIN, count, 1)
    groups = _grouped(tasks, lambda task: task.initial_state)
    different = sum(len(_streams(it, group)) for group in groups)
    if different == count:
        _require_more_than_numbers(it, tasks)
        hidden = count - len(groups)
        return f"{count} of {count}" + (f", {hidden} only after the first step" if hidden else "")
    example = next(group for group in groups if len(_streams(it, group)) < len(group))
    problem = (
        f"{count} tasks are {different} different by their instructions and states; {example[0].id} and "
        f"{example[1].id} show the same."
    )
    if different == 1 < count:
        raise Broken(problem, "Let a task's seed, or whatever names it, decide what the episode is about.")
    raise Doubtful(
        problem, "Training sees fewer tasks than data.train_tasks says: add tasks, or lower data.train_tasks."
    )


def _grouped(tasks: Sequence[Task], shown: Callable[[Task], str]) -> list[list[Task]]:
    """Return the tasks in groups of the same instruction and the same `shown`."""
    groups: dict[tuple[str, str], list[Task]] = {}
    for task in tasks:
        groups.setdefault((task.instruction, shown(task)), []).append(task)
    return list(groups.values())


def _require_more_than_numbers(it: Subject, tasks: Sequence[Task]) -> None:
    """Raise Doubtful if most tasks differ only by numbers in their states.

    Such a number can be a count of episodes, or a time.
    """
    groups = _grouped(tasks, lambda task: _NUMBER.sub("#", task.initial_state))
    different = sum(len(_streams(it, group, lambda state: _NUMBER.sub("#", state))) for group in groups)
    if 2 * different > len(tasks):
        return
    example = max(groups, key=len)
    raise Doubtful(
        f"Without the numbers in their states {len(tasks)} tasks are {different} different; "
        f"{example[0].id} begins with {example[0].initial_state!r:.80}, "
        f"{example[1].id} with {example[1].initial_state!r:.80}.",
        "If such a number is a count of episodes or a time, leave it out of the state: the tasks are the "
        "same then.",
    )


def _streams(
    it: Subject, tasks: Sequence[Task], shown: Callable[[str], str] = str
) -> set[tuple[Stream, ...]]:
    """Return the different answers to the same actions of tasks that open alike.

    The actions are those of the longest episode, then of won ones until all tasks differ: what a seed decided
    may show in the winning action alone.

    Args:
        shown: what of a state is compared.
    """
    if len(tasks) == 1:
        return {()}
    longest = max(it.episodes(), key=lambda episode: len(episode.steps), default=None)
    tried = [[step.action for step in longest.steps] if longest and longest.steps else [NO_ACTION]]
    won = [[step.action for step in episode.steps] for episode in it.episodes() if episode.success]
    tried += [actions for place, actions in enumerate(won) if actions not in won[:place]][:WON_EPISODES]
    rows = concurrent_rows(it.world, len(tasks))
    streams: list[tuple[Stream, ...]] = [()] * len(tasks)
    for actions in tried:
        for start in range(0, len(tasks), rows):
            found = _answers(it.world, tasks[start : start + rows], actions)
            for place, stream in enumerate(found, start):
                seen = tuple((shown(state), reward) for state, reward in stream)
                streams[place] = (*streams[place], seen)
        if len(set(streams)) == len(tasks):
            break
    return set(streams)


def _answers(world: Environment, tasks: Sequence[Task], actions: Sequence[str]) -> list[Stream]:
    """Return each task's states and rewards under `actions`. Raises Broken if a step failed."""
    world.reset(tasks)
    streams: list[Stream] = [()] * len(tasks)
    alive = set(range(len(tasks)))
    for action in actions:
        for row, answer in enumerate(
            world.step([action if row in alive else None for row in range(len(tasks))])
        ):
            if answer is None:
                continue
            if "failed" in answer.info:
                raise Broken(
                    f"{action!r} was done in {tasks[row].id}, and the world failed: {answer.info['failed']}"
                )
            streams[row] = (*streams[row], (answer.state, answer.reward))
            alive -= {row} if answer.done else set()
        if not alive:
            break
    return streams
