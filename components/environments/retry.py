"""What infrastructure ended says nothing about who acted: it is played again, a few times, and then given up
with its reason.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeVar

from components.errors import EnvironmentFailure

TRIES = 3
"""How often an episode that infrastructure ends is begun before a measurement or a collection is given up."""
AGAIN = "Type `dreamgym doctor`, then the same again."
Key = TypeVar("Key")
Played = TypeVar("Played")


def play_whole(
    names: Mapping[Key, str],
    play: Callable[[list[Key], int], tuple[Mapping[Key, Played], Mapping[Key, str]]],
    what: str,
    expected: str,
) -> dict[Key, Played]:
    """Every episode that is named, each played until it is whole; in the order of `names`.

    Args:
        play: plays those of the given keys, in the given try, from 0: what came of them, and of the others
            why they broke.
        what: what the episodes are, for the message; expected: why none may be missing.

    Raises:
        EnvironmentFailure: one broke in each of TRIES tries.
    """
    whole, broken, left = dict[Key, Played](), dict[Key, str](), list(names)
    for attempt in range(TRIES):
        if left:
            played, reasons = play(left, attempt)
            whole, broken = whole | dict(played), dict(reasons)
            left = [key for key in left if key not in whole]
    if left:
        found = (
            f"{len(left)} of {len(names)} {what} broke in each of {TRIES} tries, as {names[left[0]]}: "
            f"{broken[left[0]]}"
        )
        raise EnvironmentFailure(found, expected, AGAIN)
    return {key: whole[key] for key in names}
