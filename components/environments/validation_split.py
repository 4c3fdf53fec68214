"""Validation games: real games that decide on promotions, and that no model learns from and no test plays.

They are drawn as the test games are (the same shares of worlds that no training task plays in), and they are
other games. An adapter that lists `VALIDATION` among its `splits` keeps them apart by construction: by a
stream of random numbers, a range of seeds, or a list of its own. From any other adapter they are further
games of the test split, by another seed. In both cases each game is compared with the recorded tasks; one
with a recorded id, content or opening is left out.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Sequence
from dataclasses import replace

from components.environments.protocol import Adapter
from components.errors import EnvironmentFailure
from components.records import TEST, TRAIN, VALIDATION, Task

BATCH_SEEDS = 1_000_003
"""Seeds of validation draws begin here, far from the small numbers that people give `data.seed`."""
MOST_BATCHES = 1000
_TRIES = 6
_OWN_OPENING, _OWN_FIRST_STATE = 0.9, 0.5
"""Shares of the recorded tasks with an opening, or a first state, of their own from which on it tells tasks
apart.
"""


def batch_seed(draw: int, number: int) -> int:
    """The seed of batch `number` of a draw. Raises ValueError for a batch number that belongs to the next
    draw.
    """
    if not 0 <= number < MOST_BATCHES:
        raise ValueError(f"batch {number}; expected 0 to {MOST_BATCHES - 1}")
    return BATCH_SEEDS + draw * MOST_BATCHES + number


def splits_of(adapter: Adapter) -> tuple[str, ...]:
    """The splits that the adapter lists tasks of."""
    return tuple(getattr(adapter, "splits", (TRAIN, TEST)))


def require_split(split: str, splits: Sequence[str]) -> None:
    """Raises EnvironmentFailure if `split` is none of `splits`."""
    if split not in splits:
        expected = f"{', '.join(splits[:-1])} or {splits[-1]}"
        raise EnvironmentFailure(f"There is no split {split!r}.", f"Expected {expected}.")


def draw_validation_tasks(adapter: Adapter, count: int, seed: int, recorded: Sequence[Task]) -> list[Task]:
    """`count` validation tasks, the same for the same arguments; none of them is a recorded one.

    Args:
        recorded: the tasks of the other splits, and of validation batches drawn before.

    Raises:
        EnvironmentFailure: the world has fewer; the message says how many there are and what to do.
    """
    split = VALIDATION if VALIDATION in splits_of(adapter) else TEST
    left: list[Task] = []
    asked, refusal = count, ""
    for _ in range(_TRIES):
        try:
            listed = list(adapter.tasks(split, asked, seed))
        except EnvironmentFailure as failure:
            refusal = f" {failure}"
            break
        left = apart_from(listed, recorded)
        if len(left) >= count:
            return [replace(task, split=VALIDATION) for task in left[:count]]
        asked += max(count - len(left), asked)
    raise EnvironmentFailure(
        f"The world has {len(left)} validation tasks beside the {len(recorded)} recorded ones.{refusal}",
        f"Expected {count} (evaluation.tasks).",
        "Lower evaluation.tasks, or leave more tasks unrecorded: fewer of data.train_tasks, "
        "data.fidelity_tasks and "
        "data.fidelity_worlds, then `dreamgym collect`.",
    )


def apart_from(tasks: Sequence[Task], recorded: Sequence[Task]) -> list[Task]:
    """Those of `tasks` that share neither id nor spec with a recorded task, nor what tells tasks apart in
    this world.

    That is the opening, where nearly every recorded task has one of its own. Where most have a first state of
    their own, it is also the first state of a training task: a task that the curriculum makes up has its
    parent's first state and another instruction.
    """
    keys: list[Callable[[Task], Hashable]] = [lambda task: task.id, _content]
    keys += [opening] if tells_apart(recorded, opening, _OWN_OPENING) else []
    taken = [(key, {key(task) for task in recorded}) for key in keys]
    if tells_apart(recorded, first_state, _OWN_FIRST_STATE):
        taken.append((first_state, {task.initial_state for task in recorded if task.split == TRAIN}))
    return [task for task in tasks if not any(key(task) in values for key, values in taken)]


def opening(task: Task) -> tuple[str, str]:
    """What an agent reads before its first action."""
    return task.instruction, task.initial_state


def first_state(task: Task) -> str:
    """The state that the task's episodes begin in."""
    return task.initial_state


def tells_apart(tasks: Sequence[Task], key: Callable[[Task], Hashable], share: float) -> bool:
    """True if `share` of the tasks have a `key` of their own; where many have the same, what is hidden makes
    them different.
    """
    counts = Counter(key(task) for task in tasks)
    return sum(counts[key(task)] == 1 for task in tasks) >= share * len(tasks)


def _content(task: Task) -> tuple[str, ...]:
    """What makes the task's world; tasks without a spec of their own are told apart by id."""
    return (task.spec,) if task.spec != "{}" else (task.spec, task.id)
