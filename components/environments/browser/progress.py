"""How far an episode has come towards its goal, and which action comes next.

Judged by the episode's states and actions alone, so it works on real and dreamed episodes alike. The experts
act on it, thoughts and reasoning describe it, and `progress` measures it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from components.environments.browser.actions import read_action
from components.environments.browser.engine.elements import Element
from components.environments.browser.goals import read_goal
from components.environments.browser.states import View, read_state
from components.environments.browser.subgoals import Goal, Subgoal, display_name, find_element
from components.records import Trajectory


class Click(NamedTuple):
    """A click that was carried out: the element, and the view before it."""

    element: Element
    before: View


@dataclass(frozen=True)
class EpisodeStatus:
    """An episode so far.

    `goal` is None if the instruction is of no known form. `selected_ids` are the elements that a state has
    shown as selected, so their content is open already.
    """

    view: View
    clicks: tuple[Click, ...]
    goal: Goal | None
    selected_ids: frozenset[str] = frozenset()

    @property
    def fulfilled(self) -> list[bool]:
        """Whether each subgoal is fulfilled.

        A click counts if the lasting subgoals before it were fulfilled when it was done.
        """
        flags: list[bool] = []
        next_click = 0
        for place, subgoal in enumerate(self.goal.subgoals if self.goal else ()):
            if subgoal.is_lasting:
                flags.append(is_fulfilled(self.view, subgoal))
                continue
            number = next(
                (n for n in range(next_click, len(self.clicks)) if self._counts(self.clicks[n], place)), None
            )
            next_click = next_click if number is None else number + 1
            flags.append(number is not None)
        return flags

    def _counts(self, click: Click, place: int) -> bool:
        """Return whether a click fulfils the subgoal at `place`."""
        assert self.goal is not None
        subgoal = self.goal.subgoals[place]
        target = find_element(click.before, subgoal)
        earlier = [subgoal for subgoal in self.goal.subgoals[:place] if subgoal.is_lasting]
        return (
            target is not None
            and target.id == click.element.id
            and all(is_fulfilled(click.before, subgoal) for subgoal in earlier)
        )

    @property
    def next_subgoal(self) -> Subgoal | None:
        """The first subgoal that is not fulfilled."""
        subgoals = self.goal.subgoals if self.goal else ()
        return next(
            (subgoal for subgoal, is_done in zip(subgoals, self.fulfilled, strict=True) if not is_done),
            None,
        )

    @property
    def command(self) -> str:
        """The action that brings the goal nearer; "" where none is known."""
        subgoal = self.next_subgoal
        if subgoal is None:
            return ""
        element = find_element(self.view, subgoal)
        if element is None:
            unopened = self.unopened()
            return f"click [{unopened[0].id}]" if unopened else ""
        verb = "click" if subgoal.verb in ("check", "uncheck") else subgoal.verb
        return f"{verb} [{element.id}] {subgoal.value}".strip()

    def unopened(self) -> list[Element]:
        """Return the elements that were not opened yet and behind which the goal may lie."""
        if not self.goal:
            return []
        opened_ids = {click.element.id for click in self.clicks} | self.selected_ids
        openable = [
            element for element in self.view.elements if element.kind in self.goal.opens and element.id
        ]
        return [
            element
            for element in openable
            if element.id not in opened_ids and self.goal.opener in element.name
        ]


def is_fulfilled(view: View, subgoal: Subgoal) -> bool:
    """Return whether `view` shows that a lasting subgoal is fulfilled.

    A field that is disabled for the moment counts too.
    """
    element = next(
        (e for e in without_disabled_flags(view).elements if e.id and _is_target(view, e, subgoal)), None
    )
    if element is None:
        return False
    if subgoal.verb in ("check", "uncheck"):
        return ("checked" in element.flags) == (subgoal.verb == "check")
    return element.value == subgoal.value


def _is_target(view: View, element: Element, subgoal: Subgoal) -> bool:
    target = find_element(without_disabled_flags(view), subgoal)
    return target is not None and target.id == element.id


def without_disabled_flags(view: View) -> View:
    """Return the same page with nothing disabled. The values of fields that are covered stay known."""
    if not any("disabled" in element.flags for element in view.elements):
        return view
    elements = (
        Element(e.kind, e.name, e.id, e.value, e.options, tuple(f for f in e.flags if f != "disabled"))
        for e in view.elements
    )
    return View(tuple(elements))


def episode_status(trajectory: Trajectory) -> EpisodeStatus:
    """Return the status after all steps of `trajectory`. Unreadable states are skipped."""
    views = [read_state(trajectory.task.initial_state)]
    clicks = []
    for step in trajectory.steps:
        view = read_state(step.next_state)
        command = read_action(step.action)
        before = views[-1]
        element = before.element(command.id) if command else None
        if command and command.verb == "click" and element and view.readable and not view.failure:
            clicks.append(Click(element, before))
        if view.readable and not view.over:
            views.append(view)
    selected_ids = frozenset(
        element.id for view in views for element in view.elements if "selected" in element.flags
    )
    return EpisodeStatus(
        views[-1], tuple(clicks), read_goal(trajectory.task.instruction, views), selected_ids
    )


def progress(trajectory: Trajectory) -> float:
    """Return the share of the subgoals that are fulfilled.

    1.0 for a success and below 1.0 for all else; 0.0 where the instruction cannot be read.
    """
    if trajectory.success:
        return 1.0
    fulfilled = episode_status(trajectory).fulfilled
    return sum(fulfilled) / (len(fulfilled) + 1)


def goal_obstacle(view: View, goal: Goal) -> str:
    """Return why `view` shows that `goal` cannot be reached; "" if nothing in it prevents that."""
    for subgoal in goal.subgoals:
        element = find_element(view, subgoal)
        if element is None and not goal.opens and subgoal is not goal.subgoals[-1]:
            return "no such element"
        if subgoal.verb == "fill" and not subgoal.value:
            return "nothing to fill in"
        if element and subgoal.verb == "select" and subgoal.value not in element.options:
            return "no such option"
    last = goal.subgoals[-1]
    reachable = goal.opens or len(goal.subgoals) > 1 or find_element(view, last)
    return "" if reachable else "no such element"


def join_names(elements: Sequence[Element]) -> str:
    """Return the names of elements side by side, as thoughts write them."""
    return " ".join(display_name(element.name) or "nameless" for element in elements) or "nothing"
