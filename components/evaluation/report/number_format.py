"""Numbers, metric values and durations as the report prints them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

MetricEntry = Mapping[str, Any]
"""One entry of metrics.json: value, n, low, high."""


def is_measured(entry: MetricEntry) -> bool:
    """Return whether the metric has a value and at least one observation."""
    return bool(entry.get("n")) and entry.get("value") is not None


def format_value(entry: MetricEntry) -> str:
    """Return a metric's value in words.

    A whole number without uncertainty is printed as a count. A value with an interval but without
    observations is "not measured".
    """
    value = entry.get("value")
    is_certain = entry.get("low") == entry.get("high")
    if value is None or not (is_measured(entry) or is_certain):
        return "not measured"
    return f"{int(value):,}" if is_certain and float(value).is_integer() else format_number(value)


def format_interval(entry: MetricEntry) -> str:
    """Return `low to high`."""
    return f"{format_number(entry.get('low'))} to {format_number(entry.get('high'))}"


def format_number(value: Any) -> str:
    """Return a number with three decimals, or without if it is whole and at least 2; empty for None."""
    if value is None:
        return ""
    number = float(value)
    return f"{number:,.0f}" if number == int(number) and abs(number) >= 2 else f"{number:.3f}"


def format_duration(seconds: Any) -> str:
    """Return a duration in seconds, minutes or hours."""
    total = float(seconds or 0)
    if total < 60:
        return f"{total:.1f} s"
    minutes, rest = divmod(round(total), 60)
    return f"{minutes} min {rest:02d} s" if minutes < 60 else f"{minutes // 60} h {minutes % 60:02d} min"
