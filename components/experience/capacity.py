"""Which transitions of the log the index holds: a function of the log alone, however it came to be.

1. Of equal transitions (state, action, next state) two are held, so that a query's own episode never hides all of them; more
   would crowd out others. The first real ones come first, then the first synthetic ones still in reach.
2. All of these real ones are held, always, even if they alone are more than the capacity.
3. The synthetic ones in reach are the newest: the longest end of the log that fits into what capacity the real ones leave.

The log itself keeps everything.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from components.records import REAL, Transition

COPIES = 2
"""Of equal transitions, how many are held."""

Triple = tuple[str, str, str]


def held(log: Sequence[Transition], capacity: int) -> list[int]:
    """Numbers in the log of the transitions that an index of this capacity holds, ascending."""
    real: Counter[Triple] = Counter()
    kept = _first_copies(log, [number for number, transition in enumerate(log) if transition.source == REAL], real)
    synthetic = [number for number, transition in enumerate(log) if transition.source != REAL]
    reach = _reach(log, synthetic, real, capacity - len(kept))
    return sorted(kept + _first_copies(log, synthetic[reach:], real))


def _first_copies(log: Sequence[Transition], numbers: Sequence[int], counts: Counter[Triple]) -> list[int]:
    kept = []
    for number in numbers:
        triple = _triple(log[number])
        if counts[triple] < COPIES:
            counts[triple] += 1
            kept.append(number)
    return kept


def _reach(log: Sequence[Transition], synthetic: Sequence[int], real: Counter[Triple], room: int) -> int:
    """Where in `synthetic` the longest end begins that needs no more than `room` places."""
    counts = Counter(real)
    for place in range(len(synthetic) - 1, -1, -1):
        triple = _triple(log[synthetic[place]])
        if counts[triple] < COPIES:
            if room <= 0:
                return place + 1
            counts[triple] += 1
            room -= 1
    return 0


def _triple(transition: Transition) -> Triple:
    return transition.state, transition.action, transition.next_state
