"""How far the reasoning of a dreamed step quotes correctly: the page, the instruction, its own comparisons.

A small model makes mistakes in comparisons (`for 67 want lower than 60: yes`) and approves a purchase for it.
Here its reasoning is parsed in the form of the teacher's (`reasoning.reason`). It is compared only with the
texts that the model was shown. A purchase is not approved before all that the instruction names was compared.
The model decides on what was never looked at. Nothing can be said about free text (official goals).
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence

from components.environments.webshop.goals import Requirements, read_requirements
from components.environments.webshop.knowledge import NO, YES, Comparison, Knowledge
from components.environments.webshop.reasoning import compare_purchase
from components.environments.webshop.shop.session import (
    BACK_TO_SEARCH,
    BUY,
    NEXT,
    PREV,
    SUB_PAGES,
    parse_action,
)
from components.records import Task

_WORKS = ". works"
_FAILS = ". fails"
_OPENED = re.compile(r"\. works, (?:new|known) (?P<item>.+? for \d+(?: to \d+)?)(?=,|$)")
_PREMISE = re.compile(r", (?P<fits>item \d+) want (?P<opened>item \d+): (?P<answer>yes|no)")
_CONCLUSION = re.compile(r"\. (?P<not>not )?done")


def grounded(task: Task, states: Sequence[str], action: str, reasoning: str) -> int:
    """Return how many characters of `reasoning`, from its beginning, quote correctly.

    Reasoning about a search quotes nothing but the page.

    Args:
        task: the episode's task.
        states: the states so far; the action is taken in the last one.
        action: the action that the reasoning is about.
        reasoning: the text to be checked.
    """
    requirements = read_requirements(task.instruction)
    knowledge = _knowledge_of(states)
    if not requirements.is_exact:
        return len(reasoning)
    head = f"on {knowledge.place or 'search page'}. "
    verb, name = parse_action(action)
    if not reasoning.startswith(head):
        return _common_end(head, reasoning, 0)
    if verb != "click":
        return len(reasoning)
    if name == BUY and knowledge.on_item:
        return _check_purchase(reasoning, len(head), knowledge, requirements)
    place = len(head)
    if need := _expected_need(knowledge, name):
        place = _common_end(need, reasoning, place)
        if place < len(head) + len(need):
            return place
    return _check_opened_page(reasoning, place, knowledge, name)


def _knowledge_of(states: Sequence[str]) -> Knowledge:
    knowledge = Knowledge()
    for state in states:
        knowledge.add_state(state)
    return knowledge


def _common_end(expected: str, reasoning: str, place: int) -> int:
    """Return up to where `reasoning` agrees with `expected` from `place` on."""
    return place + len(os.path.commonprefix([expected, reasoning[place:]]))


def _expected_need(knowledge: Knowledge, name: str) -> str:
    """Return what a click on a result or an option is compared with, and what follows from that.

    "" where the click is compared with nothing.
    """
    if knowledge.place.startswith("results") and name not in (NEXT, PREV, BACK_TO_SEARCH):
        available = [f"item {item.rank}" for item in knowledge.listed_items]
    elif knowledge.on_item and name not in (PREV, BACK_TO_SEARCH, *SUB_PAGES):
        available = knowledge.item.values if knowledge.item else []
    else:
        return ""
    check = Comparison(" ".join(available), name, YES if name in available else NO)
    return check.words + (_WORKS if check.answer == YES else _FAILS)


def _check_opened_page(reasoning: str, place: int, knowledge: Knowledge, name: str) -> int:
    """Return up to where the description of the opened page is correct.

    It has title and price of an opened result, and whether it is the one that the dream has decided to fit.
    """
    start = place - len(_WORKS)
    opened = _OPENED.match(reasoning, start) if knowledge.place.startswith("results") else None
    item = next((item for item in knowledge.listed_items if f"item {item.rank}" == name), None)
    if opened and item and opened["item"] != f"{item.title} for {item.price}":
        return _common_end(f"{item.title} for {item.price}", reasoning, opened.start("item"))
    premise = _PREMISE.search(reasoning, max(start, 0))
    if premise and premise["opened"] != (name if item else f"item {knowledge.rank}"):
        return premise.start("opened")
    if premise and (premise["fits"] == premise["opened"]) != (premise["answer"] == YES):
        return premise.start("answer")
    return len(reasoning)


def _check_purchase(reasoning: str, place: int, knowledge: Knowledge, requirements: Requirements) -> int:
    """Return up to where the reasoning about a purchase is correct.

    Each comparison must be one of those of the purchase. `done` requires all of them and no `no`.
    """
    if not knowledge.item or not reasoning.startswith("works. ", place):
        return len(reasoning)
    place += len("works. ")
    answers = {
        comparison.words: comparison.answer
        for comparison in compare_purchase(knowledge.item, requirements, knowledge.chosen)
    }
    not_compared = set(answers)
    has_mismatch = False
    while words := next((words for words in answers if reasoning.startswith(words, place)), ""):
        not_compared.discard(words)
        has_mismatch |= answers[words] == NO
        place += len(words)
        if not reasoning.startswith(", ", place):
            break
        place += len(", ")
    conclusion = _CONCLUSION.fullmatch(reasoning, place)
    if conclusion is None:
        return max((_common_end(words, reasoning, place) for words in not_compared), default=place)
    return len(reasoning) if conclusion["not"] or not (not_compared or has_mismatch) else place
