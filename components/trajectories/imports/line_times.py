"""Orders the lines of a log by their times: ISO 8601, or seconds since 1970 as a number."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from decimal import Decimal, InvalidOperation
from typing import Any

from components.trajectories.imports.copies.line_copies import Line
from components.trajectories.imports.logged_episode import Unusable

NO_TIME = "a time that is neither ISO 8601 nor a number"
MIXED_TIMES = "a conversation with dates and numbers as times"
_MOST_SECONDS = 10**11
"""A larger number counts milliseconds, microseconds or nanoseconds; as seconds it is the year 5138."""


def in_order_of_times(lines: Sequence[Line], field: str) -> Sequence[Line]:
    """The lines in the order of the times in `field`; lines of the same time stay in their order.

    Args:
        field: it has a value in all lines; "" leaves the lines as they are.

    Raises:
        Unusable: a time cannot be read, or some times are dates and some are numbers.
    """
    if not field:
        return lines
    dates = [_date(line[field]) for _, line in lines]
    seconds = [_seconds(line[field]) for _, line in lines]
    for (_, line), date, number in zip(lines, dates, seconds, strict=True):
        if date is None and number is None:
            raise Unusable(NO_TIME, line[field])
    if None not in dates:
        return _sorted(lines, dates)
    if None not in seconds:
        return _sorted(lines, seconds)
    raise Unusable(MIXED_TIMES, [line[field] for _, line in lines])


def _sorted(lines: Sequence[Line], times: Sequence[Any]) -> list[Line]:
    order = sorted(range(len(lines)), key=times.__getitem__)
    return [lines[number] for number in order]


def _seconds(value: object) -> Decimal | None:
    """The number of seconds that a number, or a text of one, spells; None for all else."""
    if not isinstance(value, int | float | str) or isinstance(value, bool):
        return None
    try:
        seconds = Decimal(str(value).strip())
    except InvalidOperation:
        return None
    if not seconds.is_finite():
        return None
    for _ in ("milliseconds", "microseconds", "nanoseconds"):
        if abs(seconds) > _MOST_SECONDS:
            seconds /= 1000
    return seconds


def _date(value: object) -> datetime | None:
    """The time that a text in ISO 8601 spells, in UTC if it names no zone; None for all else."""
    if not isinstance(value, str):
        return None
    try:
        date = datetime.fromisoformat(value.strip().upper())
    except ValueError:
        return None
    return date if date.tzinfo else date.replace(tzinfo=UTC)
