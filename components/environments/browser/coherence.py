"""Contradictions between a browser state and the states before it, judged by the texts alone.

A page may change by itself, so only this is impossible:

- a text that is no state,
- a page after the end of an episode,
- a failed action that changed the page,
- one id for two kinds of elements of a document.

On the web ids start again with each document, so nothing is said about them.
"""

from __future__ import annotations

from components.environments.browser.states import FAILURES, FAILURES_ON_CONTACT, View, read_state
from components.records import Trajectory

_FAILURES_BEFORE_CONTACT = frozenset(
    words for name, words in FAILURES.items() if name not in FAILURES_ON_CONTACT
)


def contradiction(trajectory: Trajectory, next_state: str) -> str:
    """Return what in `next_state` cannot be true if all states of `trajectory` are; "" if nothing."""
    view = read_state(next_state)
    if not view.readable:
        return "it is no state"
    before = read_state(trajectory.states[-1])
    if before.over:
        return "the episode was over"
    if view.failure in _FAILURES_BEFORE_CONTACT and before.readable and view.elements != before.elements:
        return "a failed action changed the page"
    if "/miniwob/" in trajectory.task.id:
        return _find_changed_kind(trajectory, view)
    return ""


def _find_changed_kind(trajectory: Trajectory, view: View) -> str:
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
