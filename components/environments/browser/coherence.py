"""What a state contradicts in the states before it, judged by the texts alone: never the rules of a page.

A page may change by itself, so little is impossible: a text that is no state, a page after an episode that
was over, a failed action that changed what one sees, one id for two different elements of a document. On the
web ids begin anew with each document, and nothing is said of them.
"""

from __future__ import annotations

from components.environments.browser.states import FAILURES, TOUCHING, View, read_state
from components.records import Trajectory

_BEFORE_THE_PAGE = frozenset(words for name, words in FAILURES.items() if name not in TOUCHING)


def contradiction(trajectory: Trajectory, next_state: str) -> str:
    """What in `next_state` cannot be true if all states of `trajectory` are; "" if nothing."""
    view = read_state(next_state)
    if not view.readable:
        return "it is no state"
    before = read_state(trajectory.states[-1])
    if before.over:
        return "the episode was over"
    if view.failure in _BEFORE_THE_PAGE and before.readable and view.elements != before.elements:
        return "a failed action changed the page"
    if "/miniwob/" in trajectory.task.id:
        return _renamed(trajectory, view)
    return ""


def _renamed(trajectory: Trajectory, view: View) -> str:
    kinds = {
        element.id: element.kind
        for state in trajectory.states
        for element in read_state(state).elements
        if element.id
    }
    for element in view.elements:
        if element.id and kinds.get(element.id, element.kind) != element.kind:
            return f"{element.id} was a {kinds[element.id]}"
    return ""
