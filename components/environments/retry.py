"""Retry episodes that failed for infrastructure reasons.

Such a failure says nothing about the policy. So the episode is played again, a few times; then the caller
stops with the reason.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar

from components.errors import EnvironmentFailure

TRIES = 3
"""Times that an episode is started before a measurement or a collection is given up."""
RETRY_ADVICE = "Type `dreamgym doctor`, then the same again."
Key = TypeVar("Key")
Result = TypeVar("Result")


def play_repeatedly(
    keys: Sequence[Key], play: Callable[[list[Key], int], tuple[Mapping[Key, Result], Mapping[Key, str]]]
) -> tuple[dict[Key, Result], dict[Key, str]]:
    """Play every episode until it does not break, at most `TRIES` times.

    Args:
        play: as of `play_whole`.

    Returns:
        (key -> result of a whole episode, key -> reason why an episode broke in its last try)
    """
    results: dict[Key, Result] = {}
    reasons: dict[Key, str] = {}
    missing = list(keys)
    for attempt in range(TRIES):
        if missing:
            new_results, new_reasons = play(missing, attempt)
            results |= dict(new_results)
            reasons = dict(new_reasons)
            missing = [key for key in missing if key not in results]
    return results, {key: reasons[key] for key in missing}


def broken_error(
    reasons: Mapping[str, str], count: int, what: str, expected: str, advice: str = RETRY_ADVICE
) -> EnvironmentFailure:
    """Return the error for episodes that broke in every try.

    Args:
        reasons: name of a broken episode -> why it broke in its last try.
        count: number of all episodes.
        what: what the episodes are.
        expected: why none may be missing.
    """
    first = next(iter(reasons))
    return EnvironmentFailure(
        f"{len(reasons)} of {count} {what} broke in each of {TRIES} tries, as {first}: {reasons[first]}",
        expected,
        advice,
    )


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
    results, reasons = play_repeatedly(list(names), play)
    if reasons:
        broken = {names[key]: reason for key, reason in reasons.items()}
        raise broken_error(broken, len(names), what, expected)
    return {key: results[key] for key in names}
