"""Compares two runs: their code, data, config and machine, and their metrics."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from components.errors import DataError
from components.evaluation.metrics.metric_changes import Change, changes
from components.tracking.manifest import Manifest
from components.tracking.run_differences import Difference, differences
from components.tracking.runs import find_run, read_games, read_metrics
from components.tracking.same_policy import require_different_policies
from flows.printing.output import Output
from flows.printing.table import Column, Table


@dataclass(frozen=True)
class Comparison:
    """The differences of two runs.

    Args:
        first, second: ids of the runs.
        differences: section -> what differs.
        changes: metrics that changed.
    """

    first: str
    second: str
    differences: dict[str, list[Difference]]
    changes: list[Change]


def compare_runs(root: Path, first: str, second: str) -> Comparison:
    """Compare two runs below `root`/runs. An unfinished run has no metrics.

    Raises:
        DataError: there is no such run, its manifest is damaged, or both have the same policy.
    """
    directories = [find_run(root / "runs", name) for name in (first, second)]
    manifests = [Manifest.load(directory) for directory in directories]
    if directories[0] == directories[1]:
        raise DataError(
            f"Both names mean the run {directories[0].name}.",
            "Expected two runs.",
            "Name another one of runs/.",
        )
    by_name = {directory.name: manifest for directory, manifest in zip(directories, manifests, strict=True)}
    require_different_policies(by_name, root / ".dreamgym" / "stages", last=True)
    sections = differences(manifests[0], manifests[1], root)
    status = [manifest.status for manifest in manifests]
    if status[0] != status[1]:
        sections = {"state": [Difference("status", *status)], **sections}
    metrics = [_metrics_or_empty(directory) for directory in directories]
    games = [own for directory in directories if (own := _games_or_empty(directory))]
    changed_metrics = changes(metrics[0], metrics[1], games)
    return Comparison(directories[0].name, directories[1].name, sections, changed_metrics)


def _metrics_or_empty(directory: Path) -> Mapping[str, Any]:
    with suppress(DataError):
        return read_metrics(directory)
    return {}


def _games_or_empty(directory: Path) -> dict[str, dict[str, bool]]:
    with suppress(DataError):
        return read_games(directory)
    return {}


def print_comparison(page: Output, comparison: Comparison, *, everything: bool) -> None:
    """Print a table of what differs in the runs' code, data, config and machine, and one of their metrics.

    Args:
        everything: print also metrics whose interval of the difference contains zero. The JSON always has
            all.
    """
    page.replace(to_json(comparison))
    _print_differences(page, comparison)
    if not comparison.changes:
        page.text("All metrics are the same.")
        return
    listed_changes = [
        change
        for change in comparison.changes
        if everything or change.is_significant or change.difference is None
    ]
    names = (comparison.first, comparison.second, "second - first", "95 % interval", "n")
    columns = [Column("metric"), *(Column(name, right=True) for name in names)]
    if listed_changes:
        rows = [
            [change.name, _value_text(change.first), _value_text(change.second), *_difference_cells(change)]
            for change in listed_changes
        ]
        page.table("", Table("Metrics", columns, rows))
    hidden = len(comparison.changes) - len(listed_changes)
    if hidden:
        page.text(f"{hidden} more changed by less than their intervals; --all shows them.")


def _print_differences(page: Output, comparison: Comparison) -> None:
    if comparison.differences:
        columns = [
            Column("section"),
            Column("what"),
            Column(comparison.first, prose=True),
            Column(comparison.second, prose=True),
        ]
        rows = [
            [section if number == 0 else "", entry.name, entry.first, entry.second]
            for section, entries in comparison.differences.items()
            for number, entry in enumerate(entries)
        ]
        page.table("", Table("Differences", columns, rows))
    else:
        page.text("Code, prompts, data, config, seeds, packages and machine are the same.")


def _value_text(entry: Mapping[str, Any] | None) -> str:
    return "-" if entry is None or entry["value"] is None else f"{entry['value']:.4g}"


def _difference_cells(change: Change) -> tuple[str, str, str]:
    """Return the difference, its interval and its n; empty where there is none."""
    difference = change.difference
    if difference is None:
        return "", "", ""
    if difference.low == difference.high:
        return f"{difference.value:+.4g}", "", ""
    return (
        f"{difference.value:+.4g}",
        f"{difference.low:+.4g} to {difference.high:+.4g}",
        f"{difference.n:,}{' games' if change.paired else ''}",
    )


def to_json(comparison: Comparison) -> dict[str, Any]:
    """Return the comparison as JSON values."""
    metrics = {
        change.name: {
            "first": change.first,
            "second": change.second,
            "paired": change.paired,
            "difference": change.difference and dict(change.difference.to_json()),
        }
        for change in comparison.changes
    }
    sections = {
        section: [asdict(entry) for entry in entries] for section, entries in comparison.differences.items()
    }
    return {"runs": [comparison.first, comparison.second], "differences": sections, "metrics": metrics}
