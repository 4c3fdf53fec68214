"""What the reasoning of a dreamed step quotes wrongly: the page, the instruction, or its own comparison.

A small model slips in the letters of a name that it copies (`username cas` for chas) or makes one up, and what follows is then granted or
refused for a name that nobody wrote. Here its reasoning (`reasoning.reason` has the form) is held against the texts that it was shown, and
nothing else: neither what the goal means nor what the page would do is asked.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from components.environments.browser.actions import read_action
from components.environments.browser.goals import named
from components.environments.browser.states import View, read_state
from components.records import Task

_NO_NAME = frozenset({"blank", "nameless", "absent", "checked", "plain", "another"})
"""Words that stand for what a page shows without a name."""


class _Look(NamedTuple):
    """`said` is what stands before `want`: what was got, and perhaps before it, behind a comma, where the wanted stands."""

    said: str
    wanted: str
    holds: bool


def ungrounded(task: Task, states: Sequence[str], action: str, reasoning: str) -> str:
    """What in `reasoning` about `action` in the last of `states` does not stand where it was read; "" if nothing.

    Reasoning about an action without an element quotes nothing.
    """
    view, command = read_state(states[-1]), read_action(action)
    if command is None or not command.id or not view.readable:
        return ""
    element = view.element(command.id)
    head = f"{' '.join(view.ids) or 'nothing'} want {command.id}: " + (
        f"yes, {element.kind} {named(element.name) or 'nameless'}" if element else "no"
    )
    if not reasoning.startswith(head):
        return f"it does not begin with {head!r}"
    _, works, tail = reasoning.partition(". works")
    if not works:
        return ""
    pages = [element.name for state in states for element in read_state(state).elements]
    wrong = (_wrong(look, view, task.instruction, pages) for look in _looks(tail))
    return next((words for words in wrong if words), "")


def _looks(tail: str) -> Iterator[_Look]:
    """The comparisons behind `works`, and behind the effect if there is one."""
    for place, part in enumerate(re.findall(r"(.+?): (yes|no)(?:, |\. |$)", tail)):
        text = part[0].partition(". ")[2] if place == 0 else part[0]
        said, want, wanted = text.rpartition(" want ")
        if want:
            yield _Look(said, wanted, part[1] == "yes")


def _wrong(look: _Look, view: View, instruction: str, pages: Sequence[str]) -> str:
    got, asked = _parted(look, view)
    if look.holds != (got == look.wanted or (got.endswith(f" {look.wanted}") and look.wanted in ("checked", "plain"))):
        return f"{got!r} beside {look.wanted!r}"
    if got not in _shown(view) and got.rpartition(" ")[2] not in _NO_NAME:
        return f"{got!r} is not on the page"
    if not asked:  # no word of the instruction stands before it, or it is what the page calls something
        return "" if _stands(look.wanted, [instruction, *pages]) else f"{look.wanted!r} stands nowhere"
    read = pages if " / " in asked else [instruction]
    return "" if _stands(asked, read) and asked.casefold().endswith(look.wanted.casefold()) else f"{asked!r} stands nowhere"


def _parted(look: _Look, view: View) -> tuple[str, str]:
    """What was got, and what stands before it; a name may have a comma in it, so that which is on the page is taken."""
    places = [0, *(found.end() for found in re.finditer(", ", look.said))]
    shown = _shown(view)
    start = next((place for place in places if look.said[place:] in shown), places[-1])
    return look.said[start:], look.said[: max(0, start - 2)]


def _shown(view: View) -> set[str]:
    names = {named(element.name) for element in view.elements} | {element.value for element in view.elements}
    return (names | set(view.ids) | _NO_NAME) - {""}


def _stands(words: str, texts: Sequence[str]) -> bool:
    """True if `words` stand in one of `texts`, one behind the other; of what was worked out (`2 + 3 is 5`, a date) that cannot be asked."""
    if not words or words in _NO_NAME or " is " in words or re.fullmatch(r"[\d:./-]+", words):
        return True
    form = re.compile(r"(?<!\w)" + r"\W+".join(map(re.escape, words.split())) + r"(?!\w)", re.IGNORECASE)
    return any(form.search(text) or words in text.casefold() for text in texts)
