"""The state of a browser episode as text, and back: the page's elements, one a line, below what the last
action met with.

    Failed: no such element.               the action was not carried out; the page below is as it was
    Dialog: Are you sure?                  what a dialog said before it was dismissed
    Tab 2 of 2: Orders                     only where there is more than one, or on the web
    [16] textbox: Username = kenda (focused)
    [20] button: Login
    3 more                                 elements that there was no room for

`Episode over.` stands alone: the page has judged the episode, and shows nothing any more. `Empty page.` is a
page without elements.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Sequence
from dataclasses import dataclass

from components.environments.browser.engine.elements import FIELDS, FLAGS, TEXT, WORDS, Element, clean
from components.environments.protocol import Fact

OVER, EMPTY = "Episode over.", "Empty page."
FAILURES = {
    "malformed": "not understood",
    "place": "not possible here",
    "missing": "no such element",
    "kind": "not for this element",
    "option": "no such option",
    "disabled": "disabled",
    "page": "the page refused",
}
"""Why an action was not carried out: short name -> the words of the state."""
TOUCHING = ("page", "missing")
"""Failures that may come to light when the page is touched, and has changed; all others are found before."""


@dataclass(frozen=True)
class View:
    """A state taken apart. `readable` is False if the text does not follow the grammar (a dream may write
    anything).
    """

    elements: tuple[Element, ...] = ()
    failure: str = ""
    dialogs: tuple[str, ...] = ()
    tab: str = ""
    more: int = 0
    over: bool = False
    readable: bool = True

    def __str__(self) -> str:
        if self.over:
            return OVER
        head = [f"Failed: {self.failure}."] if self.failure else []
        head += [f"Dialog: {words}" for words in self.dialogs]
        body = [str(element) for element in self.elements] or [EMPTY]
        return "\n".join(
            [
                *head,
                *([f"Tab {self.tab}"] if self.tab else []),
                *body,
                *([f"{self.more} more"] if self.more else []),
            ]
        )

    def element(self, name: str) -> Element | None:
        """The element with the id `name`."""
        return next((element for element in self.elements if element.id == name), None)

    @property
    def ids(self) -> list[str]:
        """The ids of what can be acted on, in order."""
        return [element.id for element in self.elements if element.id]


def view_of(
    found: Sequence[Element], more: int, *, failure: str = "", dialogs: Sequence[str] = (), tab: str = ""
) -> View:
    """The view of a page; `failure` is a key of FAILURES."""
    words = tuple(clean(dialog, 80) or "(empty)" for dialog in dialogs)
    return View(tuple(found), FAILURES[failure] if failure else "", words, clean(tab, 60), more)


_LINE = re.compile(r"^\[(?P<id>[a-zA-Z]*\d+)\] (?P<kind>[a-z]+):(?: (?P<rest>.+))?$")
_FLAGGED = re.compile(rf"^(?P<rest>.*?) ?\((?P<flags>(?:{'|'.join(FLAGS)})(?:, (?:{'|'.join(FLAGS)}))*)\)$")
_OPTIONS = re.compile(r"^(?P<rest>.*?) ?\{(?P<options>[^{}]*)\}$")


@functools.lru_cache(20_000)
def read_state(state: str) -> View:
    """Parse a state text."""
    if state == OVER:
        return View(over=True)
    lines = state.split("\n")
    failure, dialogs, tab, more = "", [], "", 0
    if found := re.fullmatch(r"Failed: (.+)\.", lines[0]):
        failure, lines = found[1], lines[1:]
        if failure not in FAILURES.values():
            return View(readable=False)
    while lines and lines[0].startswith("Dialog: "):
        dialogs.append(lines.pop(0).removeprefix("Dialog: "))
    if lines and lines[0].startswith("Tab "):
        tab = lines.pop(0).removeprefix("Tab ")
    if lines and re.fullmatch(r"\d+ more", lines[-1]):
        more = int(lines.pop().split()[0])
    if lines == [EMPTY]:
        return View((), failure, tuple(dialogs), tab, more)
    elements = [_element(line) for line in lines]
    ids = [element.id for element in elements if element and element.id]
    if not elements or None in elements or len(set(ids)) < len(ids):
        return View(readable=False)
    return View(tuple(element for element in elements if element), failure, tuple(dialogs), tab, more)


def _element(line: str) -> Element | None:
    if line.startswith(f"{TEXT}: "):
        return Element(TEXT, line.removeprefix(f"{TEXT}: "))
    found = _LINE.match(line)
    if not found or found["kind"] not in WORDS:
        return None
    rest, flags, options, value = found["rest"] or "", (), (), ""
    if marked := _FLAGGED.match(rest):
        rest, flags = marked["rest"], tuple(marked["flags"].split(", "))
    if found["kind"] in FIELDS:
        if listed := _OPTIONS.match(rest):
            rest, options = listed["rest"], tuple(listed["options"].split(" | "))
        name, sign, value = f" {rest}".partition(" = ")
        rest, value = name.strip(), value if sign else ""
    return Element(found["kind"], rest, found["id"], value, options, flags)


def state_facts(state: str) -> set[Fact]:
    """What a state asserts: the elements on the page, what they hold, and what the last action met with."""
    view = read_state(state)
    if not view.readable:
        return {("unreadable", state)}
    if view.over:
        return {("event", "over")}
    facts: set[Fact] = {("event", "failed", view.failure)} if view.failure else {("event", "page")}
    facts |= {("more", str(view.more))} if view.more else set()
    facts |= {("dialog", words) for words in view.dialogs} | ({("tab", view.tab)} if view.tab else set())
    for element in view.elements:
        if not element.id:
            facts.add(("text", element.name))
            continue
        facts.add(("element", element.id, element.kind, element.name))
        facts |= {("value", element.id, element.value)} if element.kind in FIELDS else set()
        facts |= {("option", element.id, option) for option in element.options}
        facts |= {("flag", element.id, flag) for flag in element.flags if flag != "focused"}
        facts |= {("focused", element.id)} if "focused" in element.flags else set()
    return facts


def contradicts(claim: Fact, truth: set[Fact]) -> bool:
    """True if `truth`, the facts of a real state, denies `claim`: a state lists what there is, so what it
    does not list is denied.

    Where it says that there is more than it lists, an element that it does not name is not denied.
    """
    if claim in truth:
        return False
    if claim[0] in ("element", "text") and any(fact[0] == "more" for fact in truth):
        return claim[0] == "element" and any(fact[:2] == claim[:2] for fact in truth)
    return True
