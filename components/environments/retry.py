"""Retry episodes that failed for infrastructure reasons.

Such a failure says nothing about the policy. So the episode is played again, a few times; then the caller
stops with the reason.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeVar

from components.errors import EnvironmentFailure

TRIES = 3
"""Times that an episode is started before a measurement or a collection is given up."""
RETRY_ADVICE = "Type `dreamgym doctor`, then the same again."
Key = TypeVar("Key")
Result = TypeVar("Result")


def play_whole(
    names: Mapping[Key, str],
    play: Callable[[list[Key], int], tuple[Mapping[Key, Result], Mapping[Key, str]]],
    what: str,
    expected: str,
) -> dict[Key, Result]:
    """Return the result of every episode in the order of `names`, each played until it does not break.

    Args:
        names: key of an episode -> its name in messages.
        play: plays the episodes of the given keys, in the given try (from 0). It returns the results of the
            whole ones, and for each of the others why it broke.
        what: what the episodes are, for the message.
        expected: why none may be missing, for the message.

    Raises:
        EnvironmentFailure: an episode broke in each of `TRIES` tries.
    """
    results: dict[Key, Result] = {}
    reasons: dict[Key, str] = {}
    missing = list(names)
    for attempt in range(TRIES):
        if missing:
            new_results, new_reasons = play(missing, attempt)
            results |= dict(new_results)
            reasons = dict(new_reasons)
            missing = [key for key in missing if key not in results]
    if missing:
        first = missing[0]
        raise EnvironmentFailure(
            f"{len(missing)} of {len(names)} {what} broke in each of {TRIES} tries, as {names[first]}: "
            f"{reasons[first]}",
            expected,
            RETRY_ADVICE,
        )
    return {key: results[key] for key in names}
