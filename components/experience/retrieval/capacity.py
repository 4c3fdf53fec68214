"""Which transitions of the log the index holds: a function of the log alone.

1. Of equal transitions (state, action, next state) the index holds two, of two different tasks. So a query's
   own task never hides all copies; more copies would crowd out other transitions. The first real ones come
   before the first synthetic ones in reach.
2. All these real ones are held, even if they alone exceed the capacity.
3. The synthetic ones in reach are the newest: the longest end of the log that fits into the capacity that the
   real ones leave.

The log itself keeps everything.
"""

from __future__ import annotations

from collections.abc import Sequence

from components.records import REAL, Transition, origin

MAX_COPIES = 2
"""Equal transitions that are held, each of another task."""

Triple = tuple[str, str, str]
"""State, action, next state."""
TasksOfCopies = dict[Triple, set[str]]
"""Transition -> the tasks of its copies (of a generated task, its origin)."""


def select_held(log: Sequence[Transition], capacity: int) -> list[int]:
    """Numbers in the log, ascending, of the transitions that an index of this capacity holds."""
    copies: TasksOfCopies = {}
    real = [number for number, transition in enumerate(log) if transition.source == REAL]
    synthetic = [number for number, transition in enumerate(log) if transition.source != REAL]
    held_real = _first_copies(log, real, copies)
    reach = _first_in_reach(log, synthetic, copies, capacity - len(held_real))
    return sorted(held_real + _first_copies(log, synthetic[reach:], copies))


def add_copy(transition: Transition, copies: TasksOfCopies) -> bool:
    """True if the transition is held in addition to `copies`; then it is added to them."""
    tasks = copies.setdefault((transition.state, transition.action, transition.next_state), set())
    task_id = origin(transition.task_id)
    is_held = len(tasks) < MAX_COPIES and task_id not in tasks
    if is_held:
        tasks.add(task_id)
    return is_held


def _first_copies(log: Sequence[Transition], numbers: Sequence[int], copies: TasksOfCopies) -> list[int]:
    return [number for number in numbers if add_copy(log[number], copies)]


def _first_in_reach(
    log: Sequence[Transition], synthetic: Sequence[int], real_copies: TasksOfCopies, free_places: int
) -> int:
    """The place in `synthetic` where the longest end begins that needs at most `free_places`."""
    copies = {triple: set(tasks) for triple, tasks in real_copies.items()}
    for place in range(len(synthetic) - 1, -1, -1):
        if add_copy(log[synthetic[place]], copies):
            if free_places <= 0:
                return place + 1
            free_places -= 1
    return 0
