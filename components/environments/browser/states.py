"""Browser states as text, and back: the page's elements, one a line, below the result of the last action.

    Failed: no such element.               the action was not carried out; the page below is as it was
    Dialog: Are you sure?                  what a dialog said before it was dismissed
    Tab 2 of 2: Orders                     only where there is more than one, or on the web
    [16] textbox: Username = kenda (focused)
    [20] button: Login
    3 more                                 elements that the state does not list

`Episode over.` stands alone: the page has judged the episode and shows nothing any more. `Empty page.` is a
page without elements.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Sequence
from dataclasses import dataclass

from components.environments.browser.engine.elements import (
    ACTIONABLE_KINDS,
    FIELDS,
    FLAGS,
    TEXT,
    Element,
    clean_text,
)
from components.environments.protocol import Fact

OVER = "Episode over."
EMPTY = "Empty page."
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
FAILURES_ON_CONTACT = ("page", "missing")
"""Failures that only contact with the page can show, if it has changed. All others are detected before."""


@dataclass(frozen=True)
class View:
    """A parsed state. `readable` is False if the text breaks the grammar; a dream may write anything."""

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
        """Return the element with the id `name`, or None."""
        return next((element for element in self.elements if element.id == name), None)

    @property
    def ids(self) -> list[str]:
        """The ids of what can be acted on, in order."""
        return [element.id for element in self.elements if element.id]


def make_view(
    elements: Sequence[Element], more: int, *, failure: str = "", dialogs: Sequence[str] = (), tab: str = ""
) -> View:
    """Return the view of a page. `failure` is a key of FAILURES, or ""."""
    words = tuple(clean_text(dialog, 80) or "(empty)" for dialog in dialogs)
    return View(tuple(elements), FAILURES[failure] if failure else "", words, clean_text(tab, 60), more)


_LINE = re.compile(r"^\[(?P<id>[a-zA-Z]*\d+)\] (?P<kind>[a-z]+):(?: (?P<rest>.+))?$")
_FLAGGED = re.compile(rf"^(?P<rest>.*?) ?\((?P<flags>(?:{'|'.join(FLAGS)})(?:, (?:{'|'.join(FLAGS)}))*)\)$")
_OPTIONS = re.compile(r"^(?P<rest>.*?) ?\{(?P<options>[^{}]*)\}$")


@functools.lru_cache(20_000)
def read_state(state: str) -> View:
    """Parse a state text."""
    if state == OVER:
        return View(over=True)
    lines = state.split("\n")
    failure = ""
    dialogs = []
    tab = ""
    more = 0
    if match := re.fullmatch(r"Failed: (.+)\.", lines[0]):
        failure = match[1]
        lines = lines[1:]
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
    elements = [_read_element(line) for line in lines]
    ids = [element.id for element in elements if element and element.id]
    if not elements or None in elements or len(set(ids)) < len(ids):
        return View(readable=False)
    return View(tuple(element for element in elements if element), failure, tuple(dialogs), tab, more)


def _read_element(line: str) -> Element | None:
    if line.startswith(f"{TEXT}: "):
        return Element(TEXT, line.removeprefix(f"{TEXT}: "))
    match = _LINE.match(line)
    if not match or match["kind"] not in ACTIONABLE_KINDS:
        return None
    rest = match["rest"] or ""
    flags: tuple[str, ...] = ()
    options: tuple[str, ...] = ()
    value = ""
    if flags_match := _FLAGGED.match(rest):
        rest = flags_match["rest"]
        flags = tuple(flags_match["flags"].split(", "))
    if match["kind"] in FIELDS:
        if options_match := _OPTIONS.match(rest):
            rest = options_match["rest"]
            options = tuple(options_match["options"].split(" | "))
        name, sign, value = f" {rest}".partition(" = ")
        rest = name.strip()
        value = value if sign else ""
    return Element(match["kind"], rest, match["id"], value, options, flags)


def state_facts(state: str) -> set[Fact]:
    """Return what a state asserts: the elements, their values, and what the last action met with."""
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
    """Return whether `truth`, the facts of a real state, denies `claim`.

    A state lists what there is, so it denies what it does not list. Where it says that there are more
    elements than it lists, it does not deny elements that it does not name.
    """
    if claim in truth:
        return False
    if claim[0] in ("element", "text") and any(fact[0] == "more" for fact in truth):
        return claim[0] == "element" and any(fact[:2] == claim[:2] for fact in truth)
    return True
