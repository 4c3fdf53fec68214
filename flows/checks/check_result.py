"""The result of one check of `dreamgym doctor`."""

from __future__ import annotations

from dataclasses import dataclass

from components.errors import DreamGymError


@dataclass(frozen=True)
class Rung:
    """The result of one check: what was found, what was expected, what to type. `wrong` stops a run, `doubt`
    does not.
    """

    state: str
    found: str
    expected: str = ""
    next_step: str = ""


def ok(found: str) -> Rung:
    """The check passes."""
    return Rung("ok", found)


def doubt(found: str, expected: str, next_step: str) -> Rung:
    """A run can start, but may be slower or its record poorer than expected."""
    return Rung("doubt", found, expected, next_step)


def wrong(found: str, expected: str, next_step: str) -> Rung:
    """A run cannot start before this is corrected."""
    return Rung("wrong", found, expected, next_step)


def as_rung(failure: DreamGymError, cure: str = "") -> Rung:
    """A failure as a result; `cure` is what to type where the failure does not say it."""
    return wrong(failure.found, failure.expected, failure.next_step or cure)
