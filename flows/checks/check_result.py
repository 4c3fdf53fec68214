"""The result of one check of `dreamgym doctor`."""

from __future__ import annotations

from dataclasses import dataclass

from components.errors import DreamGymError


@dataclass(frozen=True)
class CheckResult:
    """The result of one check.

    Args:
        state: `ok`; `doubt`, which does not stop a run; or `wrong`, which does.
        found: what the check found, as a sentence.
        expected: what was expected, as a sentence; empty for `ok`.
        next_step: what to type; empty for `ok`.
    """

    state: str
    found: str
    expected: str = ""
    next_step: str = ""


def ok(found: str) -> CheckResult:
    """Return the result of a check that passes."""
    return CheckResult("ok", found)


def doubt(found: str, expected: str, next_step: str) -> CheckResult:
    """Return a doubt: a run can start, but may be slower or record less than expected."""
    return CheckResult("doubt", found, expected, next_step)


def wrong(found: str, expected: str, next_step: str) -> CheckResult:
    """Return an error: a run cannot start before it is corrected."""
    return CheckResult("wrong", found, expected, next_step)


def failed_check(failure: DreamGymError, next_step: str = "") -> CheckResult:
    """Return a failure as a result. `next_step` is used if the failure names none."""
    return wrong(failure.found, failure.expected, failure.next_step or next_step)
