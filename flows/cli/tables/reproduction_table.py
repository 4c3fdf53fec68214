"""What `dreamgym reproduce` prints: changes of the machine, and each metric before and after."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING

from flows.printing.output import Output
from flows.printing.table import Column, Table

if TYPE_CHECKING:
    from components.tracking.run_differences import Difference
    from flows.jobs.reproduce import Reproduction

MAX_METRIC_ROWS = 100
"""Most metrics that get a row each. With more, equal metrics are counted by the first part of their name."""
_COLUMNS = [Column("metric"), Column("then", right=True), Column("now", right=True), Column("verdict")]


def print_machine_changes(page: Output, changes: Mapping[str, Sequence[Difference]]) -> None:
    """Print how packages and machine differ from those of the original run."""
    for section, entries in changes.items():
        for change in entries:
            page.text(f"{section}: {change.name} was {change.first}, is {change.second}")
    if not changes:
        page.text("Packages and machine are the same as in the original run.")
    page.put(
        surroundings={section: [asdict(change) for change in entries] for section, entries in changes.items()}
    )


def print_reproduction(page: Output, reproduction: Reproduction) -> None:
    """Print every metric of both runs with its verdict, and a count for each verdict.

    The JSON has all metrics.
    """
    page.table("", Table(f"Run {reproduction.run_id}, reproduced", _COLUMNS, _metric_rows(reproduction)))
    for reason in dict.fromkeys(reproduction.left_out.values()):
        names = [name for name, why in reproduction.left_out.items() if why == reason]
        page.text(f"Not compared ({reason}): {', '.join(names)}")
    counts = Counter(entry.verdict for entry in reproduction.verdicts)
    summary = ", ".join(f"{count} metric{'s' * (count > 1)} {verdict}" for verdict, count in counts.items())
    page.text(f"{summary}.")
    verdicts = [
        {"metric": entry.name, "then": entry.first, "now": entry.second, "verdict": entry.verdict}
        for entry in reproduction.verdicts
    ]
    page.put(run=reproduction.run_id, succeeded=reproduction.succeeded)
    page.put(metrics=verdicts, left_out=reproduction.left_out)


def _metric_rows(reproduction: Reproduction) -> list[list[str]]:
    """Return a row for each metric, or for each metric that differs and each group of equal ones."""
    grouped = len(reproduction.verdicts) > MAX_METRIC_ROWS
    rows = [
        [entry.name, _exact_text(entry.first), _exact_text(entry.second), entry.verdict]
        for entry in reproduction.verdicts
        if not grouped or entry.verdict != "equal"
    ]
    equal_groups = Counter(
        entry.name.partition("/")[0]
        for entry in reproduction.verdicts
        if grouped and entry.verdict == "equal"
    )
    for group, count in equal_groups.items():
        rows.append([f"{group}: {count} metric{'s' * (count > 1)}", "", "", "equal"])
    return rows


def _exact_text(value: float | None) -> str:
    return "-" if value is None else f"{value:.8g}"
