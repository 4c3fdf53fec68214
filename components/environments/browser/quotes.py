"""How far the reasoning of a dreamed step quotes rightly: the page, the instruction, and its own comparisons.

A small model slips in the letters of a name that it copies (`username cas` for chas) or makes one up, and
what follows is then granted or refused for a name that nobody wrote. Here its reasoning is read by the form
that the teacher's has (`reasoning.reason`) and held against the texts that it was shown, and nothing else:
neither what the goal means nor what the page would do is asked.
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from typing import NamedTuple

from components.environments.browser.actions import Command, read_action
from components.environments.browser.engine.elements import Element
from components.environments.browser.goals import named, told
from components.environments.browser.reasoning import checked
from components.environments.browser.states import View, read_state
from components.records import Task

_CHECKED = ("checked", "plain")
_NO_NAME = frozenset({"blank", "nameless", "another", *_CHECKED})
"""Words that stand for what a page shows without a name."""
_REFUSED = re.compile(r"(, (disabled|no effect|a \w+ is no (field|list)|a select wants select))?\. fails")
_WORKS = re.compile(r"\. works(, (?:new|same|known|now (?P<now>.+?)))?(?=\. |$)")
_LOOK = re.compile(r"(?P<said>.+?) want (?P<wanted>.+?): (?P<holds>yes|no)(?=, |\. |$)")
_VERDICT = re.compile(r"(\. (done|lost|not done))?")


class _Shown(NamedTuple):
    """All that reasoning may quote: what was got by now, what stands on this page and earlier ones, the
    instruction, the action.
    """

    now: frozenset[str]
    names: tuple[str, ...]
    instruction: str
    command: Command


def grounded(task: Task, states: Sequence[str], action: str, reasoning: str) -> int:
    """How many characters of `reasoning` about `action` in the last of `states`, from its beginning on, quote
    rightly.

    Reasoning about an action without an element quotes nothing.
    """
    view, command = read_state(states[-1]), read_action(action)
    if command is None or not command.id or not view.readable:
        return len(reasoning)
    head, possible = _head(view, command)
    if not reasoning.startswith(head):
        return len(os.path.commonprefix([head, reasoning]))
    if not possible:
        return len(reasoning) if reasoning == f"{head}. fails" else len(head)
    if _REFUSED.fullmatch(reasoning, len(head)):
        return len(reasoning)
    names = tuple(element.name for state in states for element in read_state(state).elements)
    return _behind(
        reasoning, len(head), _Shown(_got(view, view.element(command.id)), names, task.instruction, command)
    )


def _head(view: View, command: Command) -> tuple[str, bool]:
    """What every reasoning about this element begins with: the ids, the element, of a list its options; and
    whether all that is there.
    """
    element = view.element(command.id)
    found = f"{' '.join(view.ids) or 'nothing'} want {command.id}: "
    if element is None:
        return f"{found}no", False
    found += f"yes, {element.kind} {told(element.name) or 'nameless'}"
    choosing = command.verb == "select" and element.kind == "select" and "disabled" not in element.flags
    if not choosing:
        return found, True
    among = command.text in element.options
    return f"{found}, {' '.join(element.options)} want {command.text}: {'yes' if among else 'no'}", among


def _behind(reasoning: str, place: int, shown: _Shown) -> int:
    """How far it is right from `place` on: that the action works, what that changes, and what was got beside
    what is wanted.
    """
    works = _WORKS.match(reasoning, place)
    if not works or not _typed(works["now"], shown):
        return place
    place = works.end()
    looked = _LOOK.match(reasoning, place + 2)
    while looked and _right(looked["said"], looked["wanted"], looked["holds"] == "yes", shown):
        place = looked.end()
        looked = _LOOK.match(reasoning, place + 2) if reasoning.startswith(", ", place) else None
    return len(reasoning) if _VERDICT.fullmatch(reasoning, place) else place


def _typed(now: str | None, shown: _Shown) -> bool:
    return now is None or now in _NO_NAME or now == shown.command.text


def _right(said: str, wanted: str, holds: bool, shown: _Shown) -> bool:
    """One comparison: what was got is on the page, what is wanted stands where it was asked for, and the
    answer is theirs.
    """
    got, asked = _parted(said, shown)
    if wanted in _CHECKED:
        label, _, state = got.rpartition(" ")
        counted = re.fullmatch(
            r"\d+\]?", label
        )  # the third box, or the one with an id: not what the page calls it
        known = got in shown.now or counted or (state == "absent" and _stands(label, [shown.instruction]))
        return bool(known) and holds == (state == wanted)
    if (
        holds and named(got) != named(wanted) or not holds and got == wanted
    ):  # whether case counts, the page decides
        return False
    if got not in shown.now and got not in _NO_NAME:
        return False
    if not asked:  # no word of the instruction stands before it, or it is what the page calls something
        return _stands(wanted, [shown.instruction, *shown.names])
    stands = asked in shown.instruction or " is " in asked or (" / " in asked and asked in shown.names)
    return stands and asked.casefold().endswith(wanted.casefold())


def _parted(said: str, shown: _Shown) -> tuple[str, str]:
    """What was got, and what stands before it; a name may have a comma in it, so that which is on the page is
    taken.
    """
    places = [0, *(found.end() for found in re.finditer(", ", said))]
    start = next((place for place in places if said[place:] in shown.now), places[-1])
    return said[start:], said[: max(0, start - 2)]


def _got(view: View, acted_on: Element | None) -> frozenset[str]:
    """What fields hold, what is checked, and what the action is about: of all else only the wanted may be
    said.
    """
    found = {
        part
        for element in view.elements
        for part in (element.value, f"{told(element.name)} {checked(element)}")
    }
    found |= {told(acted_on.name), acted_on.id} if acted_on else set()
    return frozenset(found - {""})


def _stands(words: str, texts: Sequence[str]) -> bool:
    """True if `words` stand in one of `texts`, one behind the other; of what was worked out (`2 + 3 is 5`, a
    date) that cannot be asked.
    """
    if words in _NO_NAME or " is " in words or re.fullmatch(r"[\d:./-]+", words):
        return True
    form = re.compile(r"(?<!\w)" + r"\W+".join(map(re.escape, words.split())) + r"(?!\w)", re.IGNORECASE)
    return any(form.search(text) or words in text.casefold() for text in texts)
