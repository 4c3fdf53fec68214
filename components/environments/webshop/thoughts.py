"""The thoughts that an agent is trained to write before it acts: comparisons, and the next step.

The comparisons have the form of the backbone's exercise (`components/language/exercises`), as in ALFWorld's
thoughts. Examples:

    search cotton slim oxford shirt
    tried item 1. item 4 halden cotton oxford shirt for 25. open item 4
    navy red want navy: yes, cotton want slim: unseen. read features
    cotton slim dry clean want slim: yes, nothing want navy: no. choose navy
    navy want navy: yes. buy
    cotton relaxed want slim: no. search again
"""

from __future__ import annotations

from collections.abc import Sequence

from components.environments.webshop.goals import Requirements
from components.environments.webshop.knowledge import (
    NO,
    UNSEEN,
    YES,
    Comparison,
    Item,
    Knowledge,
    assess_item,
    compare_with_requirements,
    next_missing_option,
    required_options,
)
from components.environments.webshop.shop.reward import same_option
from components.environments.webshop.states import read_state
from components.records import Trajectory


def think(requirements: Requirements, knowledge: Knowledge) -> str:
    """Return the expert's thought, given what is known."""
    if knowledge.rank and knowledge.item:
        return _think_on_item(requirements, knowledge, knowledge.item)
    if not knowledge.query:
        return f"search {requirements.query or 'product'}"
    return _think_on_results(requirements, knowledge)


def reflect(trajectory: Trajectory, alternatives: Sequence[tuple[str, str]], thought: str) -> str:
    """Return why the thought is right and the alternatives are not, by what they really lead to.

    One clause per alternative (action, next state) comes before `thought` (Early Experience's c):

        click[red] would not help. click[buy now] would buy the wrong thing. navy red want navy: yes. choose
            navy
    """
    return " ".join(
        [*(f"{action} would {_consequence(trajectory, state)}." for action, state in alternatives), thought]
    )


def _consequence(trajectory: Trajectory, state: str) -> str:
    event = read_state(state).event
    if event == "failed" or state == trajectory.states[-1]:
        return "fail"
    return "buy the wrong thing" if event == "bought" else "not help"


def _think_on_results(requirements: Requirements, knowledge: Knowledge) -> str:
    tried = [f"item {item.rank}" for item in knowledge.results() if item.groups is not None]
    notes = [f"tried {' '.join(tried)}"] if tried else []
    promising = [
        item
        for item in knowledge.listed_items
        if assess_item(item, requirements) != NO and (requirements.is_exact or item.groups is None)
    ]
    if not promising:
        return ". ".join([*notes, "none fits. search on"])
    best = max(promising, key=lambda item: (title_match_count(item, requirements), -item.rank))
    return ". ".join([*notes, f"item {best.rank} {best.title} for {best.price}", f"open item {best.rank}"])


def title_match_count(item: Item, requirements: Requirements) -> int:
    """Return how many attributes, or for free text how many words, the item's title has."""
    if requirements.is_exact:
        return sum(item.attribute(required, requirements.kind) == YES for required in requirements.attributes)
    return len(set(requirements.words) & set(item.title.split()))


def _think_on_item(requirements: Requirements, knowledge: Knowledge, item: Item) -> str:
    comparisons = compare_with_requirements(item, requirements)
    mismatch = next((comparison for comparison in comparisons if comparison.answer == NO), None)
    if mismatch:
        return f"{mismatch.words}. search again"
    open_question = next((comparison for comparison in comparisons if comparison.answer == UNSEEN), None)
    if open_question and item.features is None:
        return f"{open_question.words}. {'read features' if knowledge.on_item else 'go back'}"
    return _think_on_options(requirements, knowledge, item)


def _think_on_options(requirements: Requirements, knowledge: Knowledge, item: Item) -> str:
    """Return the thought about an item without a mismatch: which options are chosen and which are not."""
    available = " ".join(knowledge.chosen) or "nothing"
    words = [
        Comparison(
            available, value, YES if any(same_option(value, other) for other in knowledge.chosen) else NO
        ).words
        for value in required_options(item, requirements)
    ]
    value = next_missing_option(item, requirements, knowledge.chosen)
    next_step = "go back" if not knowledge.on_item else f"choose {value}" if value else "buy"
    return ". ".join([", ".join(words), next_step] if words else [next_step])
