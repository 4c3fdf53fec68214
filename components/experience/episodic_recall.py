"""Episodic recall: the earlier states of an episode that mention what an action names.

A small model concludes well between phrases that are close together and copies badly over hundreds of tokens.
So the turn repeats what the episode has shown about the objects in question. The ranking knows no
environment: states are ranked by the pairs of words that they share with the action ("cabinet 3"), ties by
recency.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

_WORD = re.compile(r"\w+")
_FUNCTION_WORDS = frozenset(
    "a an and at for from in into is of on or some the to under with".split()  # noqa: SIM905
)


def recall(states: Sequence[str], action: str, k: int) -> list[str]:
    """At most `k` of the states, the oldest first.

    The first and the current state are left out: every turn shows them. Of equal texts, only the latest
    counts.

    Args: states: in order of time, the current one last.
    """
    action_pairs = _word_pairs(action)
    if k == 0 or not action_pairs or len(states) < 3:
        return []
    latest_places = {state: place for place, state in enumerate(states[1:-1]) if state != states[-1]}
    scored = [
        (len(action_pairs & _word_pairs(state)), place, state) for state, place in latest_places.items()
    ]
    best = sorted((entry for entry in scored if entry[0]), reverse=True)[:k]
    return [state for _, _, state in sorted(best, key=lambda entry: entry[1])]


def _word_pairs(text: str) -> set[tuple[str, str]]:
    """Pairs of neighbouring words, without function words."""
    words = [word for word in _WORD.findall(text.lower()) if word not in _FUNCTION_WORDS]
    return set(zip(words, words[1:], strict=False))
