"""Two runs side by side: what made them differ, and how their metrics do."""

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
from flows.printing.output import Column, Output, Table


@dataclass(frozen=True)
class Comparison:
    """Two runs by name, section -> what differs, and the metrics that changed."""

    first: str
    second: str
    differences: dict[str, list[Difference]]
    changes: list[Change]


def compare_runs(root: Path, first: str, second: str) -> Comparison:
    """Compare two runs under `root`/runs. A run that has not come to its end has no metrics, which is then
    all that is said of them.

    Raises:
        DataError: there is no such run, its manifest is damaged, or the two are one policy.
    """
    directories = [find_run(root / "runs", name) for name in (first, second)]
    manifests = [Manifest.load(directory) for directory in directories]
    if directories[0] == directories[1]:
        raise DataError(
            f"Both names mean the run {directories[0].name}.",
            "Expected two runs.",
            "Name another one of runs/.",
        )
    named = {directory.name: manifest for directory, manifest in zip(directories, manifests, strict=True)}
    require_different_policies(named, root / ".dreamgym" / "stages", last=True)
    found = differences(manifests[0], manifests[1], root)
    state = [manifest.status for manifest in manifests]
    if state[0] != state[1]:
        found = {"state": [Difference("status", *state)], **found}
    metrics = [_metrics(directory) for directory in directories]
    games = [played for directory in directories if (played := _games(directory))]
    return Comparison(directories[0].name, directories[1].name, found, changes(metrics[0], metrics[1], games))


def _metrics(directory: Path) -> Mapping[str, Any]:
    with suppress(DataError):
        return read_metrics(directory)
    return {}


def _games(directory: Path) -> dict[str, dict[str, bool]]:
    with suppress(DataError):
        return read_games(directory)
    return {}


def print_comparison(page: Output, found: Comparison, *, everything: bool) -> None:
    """Two tables: what differs in what made the runs, and in their metrics. The JSON has all of both,
    whatever is printed.
    """
    page.replace(to_json(found))
    if found.differences:
        columns = [
            Column("section"),
            Column("what"),
            Column(found.first, prose=True),
            Column(found.second, prose=True),
        ]
        rows = [
            [section if place == 0 else "", entry.name, entry.first, entry.second]
            for section, entries in found.differences.items()
            for place, entry in enumerate(entries)
        ]
        page.table("", Table("What made them", columns, rows))
    else:
        page.text("Code, prompts, data, config, seeds, packages and machine are the same.")
    if not found.changes:
        page.text("All metrics are the same.")
        return
    shown = [change for change in found.changes if everything or change.sure or change.difference is None]
    names = (found.first, found.second, "second - first", "95 % interval", "n")
    columns = [Column("metric"), *(Column(name, right=True) for name in names)]
    if shown:
        rows = [
            [change.name, _number(change.first), _number(change.second), *_difference(change)]
            for change in shown
        ]
        page.table("", Table("Metrics", columns, rows))
    left = len(found.changes) - len(shown)
    if left:
        page.text(f"{left} more changed by less than their intervals; --all shows them.")


def _number(entry: Mapping[str, Any] | None) -> str:
    return "-" if entry is None or entry["value"] is None else f"{entry['value']:.4g}"


def _difference(change: Change) -> tuple[str, str, str]:
    found = change.difference
    if found is None:
        return "", "", ""
    if found.low == found.high:
        return f"{found.value:+.4g}", "", ""
    return (
        f"{found.value:+.4g}",
        f"{found.low:+.4g} to {found.high:+.4g}",
        f"{found.n:,}{' games' if change.paired else ''}",
    )


def to_json(found: Comparison) -> dict[str, Any]:
    """All of it as plain values."""
    metrics = {
        change.name: {
            "first": change.first,
            "second": change.second,
            "paired": change.paired,
            "difference": change.difference and dict(change.difference.to_json()),
        }
        for change in found.changes
    }
    sections = {
        section: [asdict(entry) for entry in entries] for section, entries in found.differences.items()
    }
    return {"runs": [found.first, found.second], "differences": sections, "metrics": metrics}
