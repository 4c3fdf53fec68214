"""How far the reasoning of a dreamed step quotes rightly: the page, the instruction, and its own comparisons.

A small model slips where it compares (`for 67 want lower than 60: yes`) and grants a purchase for it. Here
its reasoning is read by the form that the teacher's has (`reasoning.reason`) and held against the texts that
it was shown, and nothing else: a purchase is not granted before all that the instruction names was compared.
What was never looked at the model decides. Of free text (official goals) nothing can be said.
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence

from components.environments.webshop.goals import Wants, read_wants
from components.environments.webshop.knowledge import NO, YES, Check, Knowledge
from components.environments.webshop.reasoning import bought_checks
from components.environments.webshop.shop.session import BACK_TO_SEARCH, BUY, NEXT, PREV, SUB_PAGES, parse
from components.records import Task

_WORKS, _FAILS = ". works", ". fails"
_OPENED = re.compile(r"\. works, (?:new|known) (?P<told>.+? for \d+(?: to \d+)?)(?=,|$)")
_PREMISE = re.compile(r", (?P<fits>item \d+) want (?P<opened>item \d+): (?P<answer>yes|no)")
_VERDICT = re.compile(r"\. (?P<not>not )?done")


def grounded(task: Task, states: Sequence[str], action: str, reasoning: str) -> int:
    """How many characters of `reasoning` about `action` in the last of `states`, from its beginning on, quote
    rightly.

    Reasoning about a search quotes nothing but the page.
    """
    wants, known = read_wants(task.instruction), _learnt(states)
    if not wants.exact:
        return len(reasoning)
    head = f"on {known.place or 'search page'}. "
    verb, name = parse(action)
    if not reasoning.startswith(head):
        return _common(head, reasoning, 0)
    if verb != "click":
        return len(reasoning)
    if name == BUY and known.on_item:
        return _bought(reasoning, len(head), known, wants)
    place = len(head)
    if need := _need(known, name):
        place = _common(need, reasoning, place)
        if place < len(head) + len(need):
            return place
    return _behind(reasoning, place, known, name)


def _learnt(states: Sequence[str]) -> Knowledge:
    known = Knowledge()
    for state in states:
        known.see(state)
    return known


def _common(expected: str, reasoning: str, place: int) -> int:
    """How far `expected` stands in `reasoning` from `place` on."""
    return place + len(os.path.commonprefix([expected, reasoning[place:]]))


def _need(known: Knowledge, name: str) -> str:
    """What a click on a result or an option is compared with, and what follows from that; "" where it is
    compared with nothing.
    """
    if known.place.startswith("results") and name not in (NEXT, PREV, BACK_TO_SEARCH):
        there = [f"item {item.rank}" for item in known.listed]
    elif known.on_item and name not in (PREV, BACK_TO_SEARCH, *SUB_PAGES):
        there = known.item.values if known.item else []
    else:
        return ""
    check = Check(" ".join(there), name, YES if name in there else NO)
    return check.words + (_WORKS if check.answer == YES else _FAILS)


def _behind(reasoning: str, place: int, known: Knowledge, name: str) -> int:
    """Title and price of a result that is opened, and whether it is the one that the dream has decided to
    fit.
    """
    start = place - len(_WORKS)
    opened = _OPENED.match(reasoning, start) if known.place.startswith("results") else None
    item = next((item for item in known.listed if f"item {item.rank}" == name), None)
    if opened and item and opened["told"] != f"{item.title} for {item.price}":
        return _common(f"{item.title} for {item.price}", reasoning, opened.start("told"))
    decided = _PREMISE.search(reasoning, max(start, 0))
    if decided and decided["opened"] != (name if item else f"item {known.rank}"):
        return decided.start("opened")
    if decided and (decided["fits"] == decided["opened"]) != (decided["answer"] == YES):
        return decided.start("answer")
    return len(reasoning)


def _bought(reasoning: str, place: int, known: Knowledge, wants: Wants) -> int:
    """Each comparison is one of what was got with what is wanted, and done is what had all of them and no
    `no`.
    """
    if not known.item or not reasoning.startswith("works. ", place):
        return len(reasoning)
    place += len("works. ")
    checks = {check.words: check.answer for check in bought_checks(known.item, wants, known.chosen)}
    missing, denied = set(checks), False
    while words := next((words for words in checks if reasoning.startswith(words, place)), ""):
        missing.discard(words)
        denied |= checks[words] == NO
        place += len(words)
        if not reasoning.startswith(", ", place):
            break
        place += len(", ")
    verdict = _VERDICT.fullmatch(reasoning, place)
    if verdict is None:
        return max((_common(words, reasoning, place) for words in missing), default=place)
    return len(reasoning) if verdict["not"] or not (missing or denied) else place
