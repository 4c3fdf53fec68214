"""What `dreamgym validate` prints: each rule, examples of rows that break one, and the report's path."""

from __future__ import annotations

from typing import Any

import pandas as pd

from components.trajectories.validation import ValidationReport, examples
from components.trajectories.validation_rules import Check
from flows.printing.output import Output


def print_validation(page: Output, name: str, report: ValidationReport) -> None:
    """Print the rules of one file, the rows set aside, and the path of the Data Docs."""
    page.text(f"{name}: {report.rows:,} rows, {report.valid_rows:,} valid", style="bold")
    for check in sorted(report.checks, key=lambda check: check.success):
        page.text(_check_line(check), style="" if check.success else "red")
    quarantined = report.quarantined
    if len(quarantined):
        episodes = quarantined["episode_id"].nunique(dropna=False)
        rows = (
            f"Set aside: {len(quarantined):,} rows of {episodes:,} episodes; a broken row sets aside "
            "its whole episode."
        )
        page.text(f"{rows} All: {report.clean_path.parent / 'quarantine.parquet'}")
        for line in examples(quarantined):
            page.text(f"  {line}", style="yellow")
    casts = ", ".join(f"{column} ({kind})" for column, kind in report.columns.casts.items())
    if casts:
        page.text(f"Columns of another type, read without loss: {casts}")
    if report.columns.unread:
        page.text(f"Columns that a transition does not have, ignored: {', '.join(report.columns.unread)}")
    page.text(f"Data Docs: {report.data_docs}")
    page.put(**{name: _as_json(report)})


def _check_line(check: Check) -> str:
    rows = f" [{check.unexpected:,} row{'s' if check.unexpected != 1 else ''}]" if check.unexpected else ""
    return f"  {'kept  ' if check.success else 'broken'} {check.sentence}{rows} ({check.name})"


def _as_json(report: ValidationReport) -> dict[str, Any]:
    rules = [
        {
            "rule": check.name,
            "result": "kept" if check.success else "broken",
            "rows": check.unexpected,
            "sentence": check.sentence,
        }
        for check in report.checks
    ]
    columns = {"casts": report.columns.casts, "not_read": report.columns.unread}
    counts = {"rows": report.rows, "valid_rows": report.valid_rows, "rules": rules, "columns": columns}
    set_aside = _quarantined_rows(report.quarantined)
    return counts | {"set_aside": set_aside, "data_docs": str(report.data_docs)}


def _quarantined_rows(quarantined: pd.DataFrame) -> list[dict[str, Any]]:
    """Return every row set aside; a missing episode or step number is null."""
    rows = quarantined[["episode_id", "step", "reason"]].itertuples(index=False)
    return [
        {
            "episode": None if pd.isna(row[0]) else row[0],
            "step": None if pd.isna(row[1]) else int(row[1]),
            "reason": row[2],
        }
        for row in rows
    ]
