"""What an agent is trained to write before it acts: what it sees beside what it wants, and the sub-goal left
open.

The comparisons have the form of the backbone's exercise (`language/comparing.py`), as in ALFWorld's thoughts.
Examples:

    search cotton slim oxford shirt
    tried item 1. item 4 halden cotton oxford shirt for 25. open item 4
    navy red want navy: yes, cotton want slim: unseen. read features
    cotton slim dry clean want slim: yes, nothing want navy: no. choose navy
    navy want navy: yes. buy
    cotton relaxed want slim: no. search again
"""

from __future__ import annotations

from collections.abc import Sequence

from components.environments.webshop.goals import Wants
from components.environments.webshop.knowledge import (
    NO,
    UNSEEN,
    YES,
    Check,
    Item,
    Knowledge,
    judge,
    missing,
    picks,
    verdict,
)
from components.environments.webshop.shop.reward import same_option
from components.environments.webshop.states import read_state
from components.records import Trajectory


def think(wants: Wants, known: Knowledge) -> str:
    """The thought that the expert has after what is known."""
    if known.rank and known.item:
        return _of_item(wants, known, known.item)
    if not known.query:
        return f"search {wants.query or 'product'}"
    return _of_results(wants, known)


def reflect(trajectory: Trajectory, alternatives: Sequence[tuple[str, str]], thought: str) -> str:
    """Why the thought is right and the alternatives are not, by what they really lead to (Early Experience's
    c): `thought`, behind one clause an alternative (action, next state):

        click[red] would not help. click[buy now] would buy the wrong thing. navy red want navy: yes. choose
        navy
    """
    return " ".join(
        [*(f"{action} would {_verdict(trajectory, state)}." for action, state in alternatives), thought]
    )


def _verdict(trajectory: Trajectory, state: str) -> str:
    event = read_state(state).event
    if event == "failed" or state == trajectory.states[-1]:
        return "fail"
    return "buy the wrong thing" if event == "bought" else "not help"


def _of_results(wants: Wants, known: Knowledge) -> str:
    tried = [f"item {item.rank}" for item in known.results() if item.groups is not None]
    notes = [f"tried {' '.join(tried)}"] if tried else []
    promising = [
        item for item in known.listed if verdict(item, wants) != NO and (wants.exact or item.groups is None)
    ]
    if not promising:
        return ". ".join([*notes, "none fits. search on"])
    best = max(promising, key=lambda item: (promise(item, wants), -item.rank))
    return ". ".join([*notes, f"item {best.rank} {best.title} for {best.price}", f"open item {best.rank}"])


def promise(item: Item, wants: Wants) -> int:
    """How much of what is wanted the title shows."""
    if wants.exact:
        return sum(item.attribute(wanted, wants.kind) == YES for wanted in wants.attributes)
    return len(set(wants.words) & set(item.title.split()))


def _of_item(wants: Wants, known: Knowledge, item: Item) -> str:
    checks = judge(item, wants)
    wrong = next((check for check in checks if check.answer == NO), None)
    if wrong:
        return f"{wrong.words}. search again"
    unseen = next((check for check in checks if check.answer == UNSEEN), None)
    if unseen and item.features is None:
        return f"{unseen.words}. {'read features' if known.on_item else 'go back'}"
    return _of_choice(wants, known, item)


def _of_choice(wants: Wants, known: Knowledge, item: Item) -> str:
    """Nothing speaks against the item: what of the options is chosen, and what is not yet."""
    have = " ".join(known.chosen) or "nothing"
    words = [
        Check(have, value, YES if any(same_option(value, other) for other in known.chosen) else NO).words
        for value in picks(item, wants)
    ]
    value = missing(item, wants, known.chosen)
    goal = "go back" if not known.on_item else f"choose {value}" if value else "buy"
    return ". ".join([", ".join(words), goal] if words else [goal])
