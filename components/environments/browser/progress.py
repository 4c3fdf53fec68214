"""How far an episode has come towards its goal, and what comes next, judged by its states and actions alone.

The experts act by it, thoughts and reasoning tell it, `progress` measures it. Works on real and dreamed
episodes alike.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from components.environments.browser.actions import read_action
from components.environments.browser.engine.elements import Element
from components.environments.browser.goals import Goal, Wish, find, read_goal, told
from components.environments.browser.states import View, read_state
from components.records import Trajectory


class Click(NamedTuple):
    """A click that was carried out: on what, and what one saw before."""

    element: Element
    before: View


@dataclass(frozen=True)
class Outlook:
    """An episode so far: what one sees, what was clicked, the goal (None if the instruction is of no known
    form), and what stood open.
    """

    view: View
    clicks: tuple[Click, ...]
    goal: Goal | None
    stood_open: frozenset[str] = frozenset()

    @property
    def met(self) -> list[bool]:
        """Of each wish whether it is fulfilled. A click counts if the wishes before it were fulfilled when it
        was done.
        """
        found: list[bool] = []
        done = 0
        for place, wish in enumerate(self.goal.wishes if self.goal else ()):
            if wish.lasting:
                found.append(holds(self.view, wish))
                continue
            later = next(
                (n for n in range(done, len(self.clicks)) if self._counts(self.clicks[n], place)), None
            )
            done = done if later is None else later + 1
            found.append(later is not None)
        return found

    def _counts(self, click: Click, place: int) -> bool:
        assert self.goal is not None
        wish = self.goal.wishes[place]
        wanted = find(click.before, wish)
        earlier = [wish for wish in self.goal.wishes[:place] if wish.lasting]
        return (
            wanted is not None
            and wanted.id == click.element.id
            and all(holds(click.before, wish) for wish in earlier)
        )

    @property
    def next_wish(self) -> Wish | None:
        """The first wish that is not fulfilled."""
        wishes = self.goal.wishes if self.goal else ()
        return next((wish for wish, met in zip(wishes, self.met, strict=True) if not met), None)

    @property
    def command(self) -> str:
        """The action that brings the goal nearer; "" where none is known."""
        wish = self.next_wish
        if wish is None:
            return ""
        element = find(self.view, wish)
        if element is None:
            behind = self.unopened()
            return f"click [{behind[0].id}]" if behind else ""
        verb = "click" if wish.verb in ("check", "uncheck") else wish.verb
        return f"{verb} [{element.id}] {wish.value}".strip()

    def unopened(self) -> list[Element]:
        """What was not opened yet, of the kinds behind which the goal may lie."""
        if not self.goal:
            return []
        tried = {click.element.id for click in self.clicks} | self.stood_open
        closed = [element for element in self.view.elements if element.kind in self.goal.opens and element.id]
        return [element for element in closed if element.id not in tried and self.goal.opener in element.name]


def holds(view: View, wish: Wish) -> bool:
    """True if what one sees shows that a lasting wish is fulfilled; a field that is disabled for the moment
    counts too.
    """
    element = next((e for e in enabled(view).elements if e.id and _is(view, e, wish)), None)
    if element is None:
        return False
    if wish.verb in ("check", "uncheck"):
        return ("checked" in element.flags) == (wish.verb == "check")
    return element.value == wish.value


def _is(view: View, element: Element, wish: Wish) -> bool:
    wanted = find(enabled(view), wish)
    return wanted is not None and wanted.id == element.id


def enabled(view: View) -> View:
    """The same page with nothing disabled: what a field that is covered for the moment holds is seen all the
    same.
    """
    if not any("disabled" in element.flags for element in view.elements):
        return view
    elements = (
        Element(e.kind, e.name, e.id, e.value, e.options, tuple(f for f in e.flags if f != "disabled"))
        for e in view.elements
    )
    return View(tuple(elements))


def outlook(trajectory: Trajectory) -> Outlook:
    """The outlook after all steps of `trajectory`; states that cannot be read are passed over."""
    views, clicks = [read_state(trajectory.task.initial_state)], []
    for step in trajectory.steps:
        view, command, before = read_state(step.next_state), read_action(step.action), views[-1]
        element = before.element(command.id) if command else None
        if command and command.verb == "click" and element and view.readable and not view.failure:
            clicks.append(Click(element, before))
        if view.readable and not view.over:
            views.append(view)
    stood_open = frozenset(
        element.id for view in views for element in view.elements if "selected" in element.flags
    )
    return Outlook(views[-1], tuple(clicks), read_goal(trajectory.task.instruction, views), stood_open)


def progress(trajectory: Trajectory) -> float:
    """The share of the wishes that are fulfilled: 1.0 of a success, below 1.0 of all else, 0.0 where the
    instruction cannot be read.
    """
    if trajectory.success:
        return 1.0
    met = outlook(trajectory).met
    return sum(met) / (len(met) + 1)


def missing(view: View, goal: Goal) -> str:
    """Why `goal` cannot be reached from where one sees `view`, as far as one sees; "" if nothing speaks
    against it.
    """
    for wish in goal.wishes:
        element = find(view, wish)
        if element is None and not goal.opens and wish is not goal.wishes[-1]:
            return "no such element"
        if wish.verb == "fill" and not wish.value:
            return "nothing to fill in"
        if element and wish.verb == "select" and wish.value not in element.options:
            return "no such option"
    last = goal.wishes[-1]
    reached = goal.opens or len(goal.wishes) > 1 or find(view, last)
    return "" if reached else "no such element"


def names(elements: Sequence[Element]) -> str:
    """The names of elements as one says them side by side."""
    return " ".join(told(element.name) or "nameless" for element in elements) or "nothing"
