"""Numbers as text and as cells of tables: rates with interval and n, durations."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from flows.printing.table import Cell, Column


def rate_columns(name: str, confidence: float, n: str = "n") -> list[Column]:
    """Return the columns of a rate: its value, its interval, and its number of observations (`n`)."""
    return [
        Column(name, right=True),
        Column(level(confidence), "interval", right=True),
        Column(n, right=True),
    ]


def rate_cells(entry: Mapping[str, Any]) -> list[Cell]:
    """Return the cells of a rate: its value, its interval, and its number of observations."""
    n = entry.get("n")
    return [
        Cell(entry.get("value") if n else None, share(entry)),
        interval_cell(entry),
        Cell(n, "" if n is None else f"{n:,}"),
    ]


def interval_cell(entry: Mapping[str, Any]) -> Cell:
    """Return both ends of a rate's interval as a cell."""
    has_interval = entry.get("n") and entry.get("low") is not None
    return Cell([entry["low"], entry["high"]] if has_interval else None, interval(entry))


def level(confidence: float) -> str:
    """Return the heading of a column of intervals, such as `95 % interval`."""
    return f"{100 * confidence:.6g} % interval"


def share(entry: Mapping[str, Any]) -> str:
    """Return a rate in percent; `not measured` without observations."""
    return f"{entry['value']:.1%}" if entry.get("n") and entry.get("value") is not None else "not measured"


def interval(entry: Mapping[str, Any]) -> str:
    """Return both ends of a rate's interval in percent."""
    return (
        f"{entry['low']:.1%} to {entry['high']:.1%}"
        if entry.get("n") and entry.get("low") is not None
        else ""
    )


def with_n(entry: Mapping[str, Any]) -> Cell:
    """Return a rate with its interval and its n as one cell."""
    return (
        Cell(dict(entry), f"{share(entry)} ({interval(entry)}, n={entry['n']})")
        if entry.get("n")
        else Cell(None)
    )


def duration(seconds: float) -> str:
    """Return a duration as `42 s`, `3 min 05 s` or `1 h 02 min`."""
    if seconds < 60:
        return f"{seconds:.0f} s"
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest:02d} s" if minutes < 60 else f"{minutes // 60} h {minutes % 60:02d} min"


def seconds_text(seconds: float | None) -> str:
    """Return seconds, or minutes from two minutes on; empty for None."""
    if seconds is None:
        return ""
    return f"{seconds:.0f} s" if seconds < 120 else f"{seconds / 60:.0f} min"
