"""Draw validation games: real games for promotion decisions, in no training set and in no test set.

They are drawn as the test games are, with the same share of worlds that no training task plays in, and they
are other games. An adapter that lists `VALIDATION` among its `splits` keeps them apart by construction: by a
random stream, a range of seeds, or a list of its own. From any other adapter they are further games of the
test split, drawn with another seed. In both cases each game is compared with the recorded tasks; one with a
recorded id, content or opening is left out.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Sequence
from dataclasses import replace

from components.environments.capabilities import Adapter, ValidationSplit
from components.environments.mixed.tasks import NAME as MIXED
from components.errors import EnvironmentFailure
from components.records import TEST, TRAIN, VALIDATION, Task

BATCH_SEEDS = 1_000_003
"""The first seed of validation draws, far from the small numbers that people give `data.seed`."""
MOST_BATCHES = 1000
"""Batches of one draw."""
_TRIES = 6
"""Times that the adapter is asked for tasks, each time for more."""
_SHARE_OF_OWN_OPENINGS = 0.9
"""Openings identify tasks if at least this share of the recorded tasks has one of its own."""
_SHARE_OF_OWN_FIRST_STATES = 0.5
"""The same for first states."""


def batch_seed(draw: int, number: int) -> int:
    """Return the seed of batch `number` of a draw.

    Raises:
        ValueError: the batch number belongs to the next draw.
    """
    if not 0 <= number < MOST_BATCHES:
        raise ValueError(f"batch {number}; expected 0 to {MOST_BATCHES - 1}")
    return BATCH_SEEDS + draw * MOST_BATCHES + number


def splits_of(adapter: Adapter) -> tuple[str, ...]:
    """Return the splits that the adapter lists tasks of."""
    return tuple(adapter.splits) if isinstance(adapter, ValidationSplit) else (TRAIN, TEST)


def require_split(split: str, splits: Sequence[str]) -> None:
    """Raise EnvironmentFailure if `split` is none of `splits`."""
    if split not in splits:
        raise EnvironmentFailure(
            f"There is no split {split!r}.", f"Expected {', '.join(splits[:-1])} or {splits[-1]}."
        )


def draw_validation_tasks(adapter: Adapter, count: int, seed: int, recorded: Sequence[Task]) -> list[Task]:
    """Return `count` validation tasks, the same for the same arguments; none of them is a recorded one.

    Args:
        recorded: the tasks of the other splits, and of validation batches drawn before.

    Raises:
        EnvironmentFailure: the world has fewer; the message says how many there are and what to do.
    """
    split = VALIDATION if VALIDATION in splits_of(adapter) else TEST
    new_tasks: list[Task] = []
    requested = count
    refusal = ""
    for _ in range(_TRIES):
        try:
            listed = list(adapter.tasks(split, requested, seed))
        except EnvironmentFailure as failure:
            refusal = f" {failure}"
            break
        new_tasks = equal_shares(apart_from(listed, recorded), listed, count)
        if len(new_tasks) >= count:
            return [replace(task, split=VALIDATION) for task in new_tasks]
        requested += max(count - len(new_tasks), requested)
    raise EnvironmentFailure(
        f"The world has {len(new_tasks)} validation tasks beside the {len(recorded)} recorded ones.{refusal}",
        f"Expected {count} (evaluation.tasks).",
        "Lower evaluation.tasks, or leave more tasks unrecorded: fewer of data.train_tasks, "
        "data.fidelity_tasks and data.fidelity_worlds, then `dreamgym collect`.",
    )


def apart_from(tasks: Sequence[Task], recorded: Sequence[Task]) -> list[Task]:
    """Return those of `tasks` that differ from every recorded task in all that identifies a task here.

    That is always the id and the spec. It is the opening, where nearly every recorded task has one of its
    own. Where most have a first state of their own, it is also the first state of a training task: a task
    that the curriculum generates has its parent's first state and another instruction.

    In a mixture of worlds each world's tasks are compared with that world's recorded ones.
    """
    apart = {
        task.id
        for world in dict.fromkeys(map(_world, tasks))
        for task in _apart_in_world(
            [task for task in tasks if _world(task) == world],
            [task for task in recorded if _world(task) == world],
        )
    }
    return [task for task in tasks if task.id in apart]


def equal_shares(tasks: Sequence[Task], listed: Sequence[Task], count: int) -> list[Task]:
    """Return `count` of `tasks` with an equal share of each world in `listed`; fewer if a world has fewer."""
    worlds = list(dict.fromkeys(map(_world, listed)))
    shares = [len(range(place, count, len(worlds))) for place in range(len(worlds))]
    chosen = {
        task.id
        for world, share in zip(worlds, shares, strict=True)
        for task in [task for task in tasks if _world(task) == world][:share]
    }
    return [task for task in tasks if task.id in chosen]


def _world(task: Task) -> str:
    """Return the world of the task; in a mixture of worlds it is the task's family."""
    return task.family if task.environment == MIXED else task.environment


def _apart_in_world(tasks: Sequence[Task], recorded: Sequence[Task]) -> list[Task]:
    keys: list[Callable[[Task], Hashable]] = [lambda task: task.id, _content]
    keys += [opening] if tells_apart(recorded, opening, _SHARE_OF_OWN_OPENINGS) else []
    recorded_values = [(key, {key(task) for task in recorded}) for key in keys]
    if tells_apart(recorded, first_state, _SHARE_OF_OWN_FIRST_STATES):
        training_states: set[Hashable] = {task.initial_state for task in recorded if task.split == TRAIN}
        recorded_values.append((first_state, training_states))
    return [task for task in tasks if not any(key(task) in values for key, values in recorded_values)]


def opening(task: Task) -> tuple[str, str]:
    """Return what an agent reads before its first action."""
    return task.instruction, task.initial_state


def first_state(task: Task) -> str:
    """Return the state that the task's episodes begin in."""
    return task.initial_state


def tells_apart(tasks: Sequence[Task], key: Callable[[Task], Hashable], share: float) -> bool:
    """Return True if at least `share` of the tasks have a `key` of their own.

    Where many have the same, what is hidden makes them different.
    """
    counts = Counter(key(task) for task in tasks)
    return sum(counts[key(task)] == 1 for task in tasks) >= share * len(tasks)


def _content(task: Task) -> tuple[str, ...]:
    """Return what makes the task's world; a task without a spec of its own is identified by its id."""
    return (task.spec,) if task.spec != "{}" else (task.spec, task.id)
