"""Subgoals of a browser task: one thing to do to one element, and how that element is found on a page."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from components.environments.browser.engine.elements import EDITABLE, Element
from components.environments.browser.states import View

BUTTONS = ("button", "item", "tab", "link", "menuitem")
LINKS = ("item", "link")
EDITABLE_KINDS = tuple(sorted(EDITABLE))
_SUBMIT_NAMES = ("submit", "login", "search", "go!", "ok")


@dataclass(frozen=True)
class Subgoal:
    """One thing that the goal wants done to one element: click, fill, clear, check, uncheck or select."""

    verb: str
    name: str
    """The element's name, used where neither `place` nor `id` says which one it is."""
    kinds: tuple[str, ...]
    value: str = ""
    source: str = ""
    """Where the value comes from, in words of the page."""
    place: int = 0
    """The element's number among its kinds, from 1; 0 if it is found otherwise."""
    id: str = ""

    @property
    def label(self) -> str:
        """What the element is called: `[13]`, `#2`, or its name."""
        return f"[{self.id}]" if self.id else f"#{self.place}" if self.place else self.name

    @property
    def is_lasting(self) -> bool:
        """Whether the page shows that it is fulfilled. Only the history shows that something was clicked."""
        return self.verb != "click"


@dataclass(frozen=True)
class Goal:
    """Subgoals in order, and what may hide their elements.

    `opens` are the kinds of elements behind which an element that is not visible may lie. `opener` is what
    their names contain.
    """

    subgoals: tuple[Subgoal, ...]
    opens: tuple[str, ...] = ()
    opener: str = ""


def display_name(name: str) -> str:
    """Return a name as thoughts and reasoning write it: letter for letter, without a colon behind it.

    A small model copies what it has read, and nothing else.
    """
    return name.strip(" :")


def normalise_name(name: str) -> str:
    """Return a name as it is compared: without case and a colon behind it.

    A full stop counts: `morbi` and `morbi.` may be two links.
    """
    return display_name(name).casefold()


def find_element(view: View, subgoal: Subgoal) -> Element | None:
    """Return the element that `subgoal` is about, if it is visible and not disabled."""
    candidates = find_candidates(view, subgoal)
    if subgoal.id:
        return next((element for element in candidates if element.id == subgoal.id), None)
    if subgoal.place:
        return candidates[subgoal.place - 1] if subgoal.place <= len(candidates) else None
    return next(
        (element for element in candidates if normalise_name(element.name) == normalise_name(subgoal.name)),
        None,
    )


def find_candidates(view: View, subgoal: Subgoal) -> list[Element]:
    """Return the enabled elements of the kinds of `subgoal`, in the page's order."""
    return [e for e in view.elements if e.id and e.kind in subgoal.kinds and "disabled" not in e.flags]


def click(name: str, kinds: Sequence[str] = BUTTONS) -> Subgoal:
    """Return the subgoal to click the element of this name."""
    return Subgoal("click", name, tuple(kinds))


def click_first(*kinds: str) -> Subgoal:
    """Return the subgoal to click the first element of these kinds."""
    return Subgoal("click", "", kinds, place=1)


def fill_field(value: str, place: int = 1, source: str = "") -> Subgoal:
    """Return the subgoal to fill the field at `place`."""
    return Subgoal("fill", "", EDITABLE_KINDS, value, source, place)


def click_submit(views: Sequence[View]) -> Subgoal:
    """Return the subgoal to click what sends the form: the first button with such a name, else the last."""
    buttons = [element for element in views[0].elements if element.kind in BUTTONS]
    submit_buttons = [element for element in buttons if normalise_name(element.name) in _SUBMIT_NAMES]
    button = (submit_buttons or buttons[-1:] or [Element("button", "Submit")])[0]
    return click(button.name)
