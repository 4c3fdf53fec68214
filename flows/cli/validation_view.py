"""What `dreamgym validate` prints: each rule in a sentence, examples of different episodes, and where the
rest is.
"""

from __future__ import annotations

from typing import Any

import pandas as pd

from components.trajectories.validation import Check, ValidationReport, examples
from flows.printing.output import Output


def print_validation(page: Output, name: str, report: ValidationReport) -> None:
    """The rules of one file, what was set aside, and where the Data Docs are."""
    page.text(f"{name}: {report.rows:,} rows, {report.valid_rows:,} valid", style="bold")
    for check in sorted(report.checks, key=lambda check: check.success):
        page.text(_line(check), style="" if check.success else "red")
    aside = report.quarantined
    if len(aside):
        episodes = aside["episode_id"].nunique(dropna=False)
        rows = (
            f"Set aside: {len(aside):,} rows of {episodes:,} episodes, since an episode with a hole is none."
        )
        page.text(f"{rows} All: {report.clean_path.parent / 'quarantine.parquet'}")
        for line in examples(aside):
            page.text(f"  {line}", style="yellow")
    casts = ", ".join(f"{column} ({kind})" for column, kind in report.columns.casts.items())
    if casts:
        page.text(f"Columns of another type, read without loss: {casts}")
    if report.columns.unread:
        page.text(f"Columns that a transition does not have, not read: {', '.join(report.columns.unread)}")
    page.text(f"Data Docs: {report.data_docs}")
    page.put(**{name: _as_json(report)})


def _line(check: Check) -> str:
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
    found = {"rows": report.rows, "valid_rows": report.valid_rows, "rules": rules, "columns": columns}
    return found | {"set_aside": _rows_of(report.quarantined), "data_docs": str(report.data_docs)}


def _rows_of(quarantined: pd.DataFrame) -> list[dict[str, Any]]:
    """Every row set aside; one without an episode or a number has null there."""
    named = quarantined[["episode_id", "step", "reason"]].itertuples(index=False)
    return [
        {
            "episode": None if pd.isna(row[0]) else row[0],
            "step": None if pd.isna(row[1]) else int(row[1]),
            "reason": row[2],
        }
        for row in named
    ]
