"""Which transitions of the log the index holds: a function of the log alone, however it came to be.

1. Of equal transitions (state, action, next state) two are held, of two tasks, so that a query's own task
   never hides all of
   them; more would crowd out others. The first real ones come first, then the first synthetic ones still in
   reach.
2. All of these real ones are held, always, even if they alone are more than the capacity.
3. The synthetic ones in reach are the newest: the longest end of the log that fits into what capacity the
   real ones leave.

The log itself keeps everything.
"""

from __future__ import annotations

from collections.abc import Sequence

from components.records import REAL, Transition, origin

COPIES = 2
"""Of equal transitions, how many are held; each of another task."""

Triple = tuple[str, str, str]
Known = dict[Triple, set[str]]
"""Transition -> the tasks (origins of generated ones) that its copies are of."""


def held(log: Sequence[Transition], capacity: int) -> list[int]:
    """Numbers in the log of the transitions that an index of this capacity holds, ascending."""
    real: Known = {}
    kept = _first_copies(
        log, [number for number, transition in enumerate(log) if transition.source == REAL], real
    )
    synthetic = [number for number, transition in enumerate(log) if transition.source != REAL]
    reach = _reach(log, synthetic, real, capacity - len(kept))
    return sorted(kept + _first_copies(log, synthetic[reach:], real))


def another_copy(transition: Transition, known: Known) -> bool:
    """True if the transition is to be held beside its copies in `known`, where it is then noted."""
    tasks = known.setdefault((transition.state, transition.action, transition.next_state), set())
    wanted = len(tasks) < COPIES and origin(transition.task_id) not in tasks
    if wanted:
        tasks.add(origin(transition.task_id))
    return wanted


def _first_copies(log: Sequence[Transition], numbers: Sequence[int], known: Known) -> list[int]:
    return [number for number in numbers if another_copy(log[number], known)]


def _reach(log: Sequence[Transition], synthetic: Sequence[int], real: Known, room: int) -> int:
    """Where in `synthetic` the longest end begins that needs no more than `room` places."""
    known = {triple: set(tasks) for triple, tasks in real.items()}
    for place in range(len(synthetic) - 1, -1, -1):
        if another_copy(log[synthetic[place]], known):
            if room <= 0:
                return place + 1
            room -= 1
    return 0
