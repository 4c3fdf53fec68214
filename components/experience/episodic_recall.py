"""Episodic recall: the earlier states of an episode that speak of what an action names.

A small model concludes well between phrases that stand side by side and copies badly over hundreds of tokens;
so what the episode has told about the things in question is shown again next to the question. It knows
nothing of any environment: states are ranked by the pairs of words that they share with the action ("cabinet
3"), ties by recency.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

_WORD = re.compile(r"\w+")
_GLUE = frozenset(
    [
        "a",
        "an",
        "and",
        "at",
        "for",
        "from",
        "in",
        "into",
        "is",
        "of",
        "on",
        "or",
        "some",
        "the",
        "to",
        "under",
        "with",
    ]
)


def recall(states: Sequence[str], action: str, k: int) -> list[str]:
    """At most `k` of `states`, which are in order of time, the last of them the current one; the oldest comes
    first.

    The first and the current state are left out, since every turn shows them anyway; of equal texts only the
    latest counts.
    """
    wanted = _pairs(action)
    if k == 0 or not wanted or len(states) < 3:
        return []
    latest = {state: place for place, state in enumerate(states[1:-1]) if state != states[-1]}
    scored = [(len(wanted & _pairs(state)), place, state) for state, place in latest.items()]
    best = sorted((entry for entry in scored if entry[0]), reverse=True)[:k]
    return [state for _, _, state in sorted(best, key=lambda entry: entry[1])]


def _pairs(text: str) -> set[tuple[str, str]]:
    words = [word for word in _WORD.findall(text.lower()) if word not in _GLUE]
    return set(zip(words, words[1:], strict=False))
