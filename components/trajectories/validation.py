"""Validate recorded transitions with Great Expectations: set broken rows aside with their reasons.

A row that breaks a rule takes its whole episode along, because a trajectory must have no gap. Too many such
rows stop the run. Text that spells a reserved marker is counted, not refused: it is encoded as plain text
later.
"""

from __future__ import annotations

import shutil
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa

from components.config import DataConfig
from components.errors import DataError
from components.records import TRAIN, Task, Transition
from components.trajectories.columns import ColumnProblem, Columns, examine, refused
from components.trajectories.data_docs import Rule, make_local
from components.trajectories.expectations import check_of, open_context, reasons_by_row, run_expectations
from components.trajectories.parquet_file import read_table, remove_table, write_frame
from components.trajectories.store import TRANSITION_DEFAULTS, TRANSITION_SCHEMA, write_transitions
from components.trajectories.validation_rules import (
    ENVIRONMENTS,
    Check,
    add_rule_columns,
    column_expectation,
    row_expectations,
)

ANOTHER_STEP = "another step of the episode is invalid"
"""Reason of a valid row that is set aside with its episode."""
_ROWS_A_PART = 10_000


@dataclass(frozen=True)
class ValidationReport:
    """Result of a validation.

    `share` counts the rows that break a rule. `quarantined` also has the other rows of their episodes.
    `columns` names the columns of the file that were cast, and those that are not read.
    """

    rows: int
    valid_rows: int
    quarantined: pd.DataFrame
    share: float
    checks: list[Check]
    data_docs: Path
    clean_path: Path
    columns: Columns


def validate(
    transitions_path: Path,
    tasks_by_split: Mapping[str, Sequence[Task]],
    config: DataConfig,
    out_dir: Path,
    split: str = TRAIN,
    environments: Collection[str] = ENVIRONMENTS,
    title: str = "",
    run_name: str = "",
) -> ValidationReport:
    """Check the transitions of the tasks of `split`. Tasks of the other splits must not occur.

    It writes `transitions.parquet` (the clean episodes), `quarantine.parquet` (the others, with `reason`) and
    `data_docs/index.html` into `out_dir`.

    Args:
        title, run_name: names of the data set and of the run in the Data Docs.

    Raises:
        DataError: the file is missing, damaged or has other columns; more than `config.quarantine_share` of
            the rows break a rule; or no row is left.
    """
    title = title or transitions_path.stem
    run_name = run_name or "dreamgym-validate"
    docs, clean_path = _prepare_output(out_dir)
    raw = read_table(transitions_path)
    context = open_context(docs)
    facts = [("file", str(transitions_path)), ("run", run_name), ("rows", f"{raw.num_rows:,}")]
    columns, problems = examine(raw, TRANSITION_SCHEMA, TRANSITION_DEFAULTS)
    checks = _check_columns(context, problems, run_name)
    if problems:  # the other rules need the right columns
        make_local(docs, title, facts, _rules(checks))
        raise refused(transitions_path, problems)
    frame = columns.table.to_pandas(ignore_metadata=True)
    with_rules = add_rule_columns(frame, tasks_by_split, split, environments)
    results = run_expectations(context, "transitions", with_rules, row_expectations(config), run_name)
    checks += map(check_of, results)
    reasons = reasons_by_row(results, frame)
    quarantined = _quarantine(frame, reasons)
    write_frame(out_dir / "quarantine.parquet", quarantined)
    shutil.rmtree(docs / "static", ignore_errors=True)  # images and fonts of Great Expectations' own pages
    make_local(docs, title, [*facts, *_counts(reasons, quarantined)], _rules(checks))
    clean = frame.drop(index=quarantined.index)
    share = len(reasons) / len(frame)
    if share > config.quarantine_share or clean.empty:
        raise _too_many_broken_rows(transitions_path, frame, reasons, config, out_dir)
    has_unknown = not clean["outcome_known"].all()
    write_transitions(
        clean_path, _transitions(columns.table, clean.index), unknown_outcomes=bool(has_unknown)
    )
    return ValidationReport(
        len(frame), len(clean), quarantined, share, checks, docs / "index.html", clean_path, columns
    )


def _prepare_output(out_dir: Path) -> tuple[Path, Path]:
    """Remove earlier results; return (directory of the Data Docs, file of the clean transitions)."""
    docs = out_dir / "data_docs"
    clean_path = out_dir / "transitions.parquet"
    shutil.rmtree(docs, ignore_errors=True)
    remove_table(clean_path)
    return docs, clean_path


def _check_columns(context: Any, problems: Sequence[ColumnProblem], run_name: str) -> list[Check]:
    frame, rule = column_expectation(problems)
    return [check_of(result) for result in run_expectations(context, "columns", frame, [rule], run_name)]


def _counts(reasons: Mapping[int, list[str]], quarantined: pd.DataFrame) -> list[tuple[str, str]]:
    """Names and values for the first page of the Data Docs."""
    return [
        ("rows that break a rule", f"{len(reasons):,}"),
        ("rows set aside with their episodes", f"{len(quarantined):,}"),
    ]


def _transitions(table: pa.Table, rows: pd.Index) -> Iterator[Transition]:
    """Yield the transitions of these rows; those of `_ROWS_A_PART` rows are in memory as Python objects."""
    for start in range(0, len(rows), _ROWS_A_PART):
        columns = table.take(pa.array(rows[start : start + _ROWS_A_PART])).columns
        yield from (Transition(*row) for row in zip(*(column.to_pylist() for column in columns), strict=True))


def _rules(checks: list[Check]) -> list[Rule]:
    return [Rule(check.name, check.sentence, check.success, check.unexpected) for check in checks]


def _quarantine(frame: pd.DataFrame, reasons: dict[int, list[str]]) -> pd.DataFrame:
    """The broken rows and the other rows of their episodes, with a column `reason`."""
    episode_ids = frame["episode_id"].iloc[list(reasons)].dropna()
    is_quarantined = frame.index.isin(list(reasons)) | frame["episode_id"].isin(episode_ids)
    rows = frame.index[is_quarantined]
    reason_texts = ["; ".join(reasons.get(row, [ANOTHER_STEP])) for row in rows]
    return frame[is_quarantined].assign(reason=pd.Series(reason_texts, index=rows, dtype="str"))


def examples(quarantined: pd.DataFrame, count: int = 5) -> list[str]:
    """The first broken row of up to `count` episodes as text: step, rule and value.

    Rows of rules that are not shown yet come first.
    """
    broken = quarantined[quarantined["reason"] != ANOTHER_STEP]
    rows = broken[~broken["episode_id"].duplicated()]
    rule = rows["reason"].str.partition(" ")[0]
    selected = pd.concat([rows[~rule.duplicated()], rows[rule.duplicated()]]).head(count)
    return [
        f"episode {row['episode_id']} step {_step_text(row['step'])}: {row['reason']}"
        for _, row in selected.iterrows()
    ]


def _step_text(step: Any) -> str:
    return "without a number" if pd.isna(step) else f"{step:g}"


def _too_many_broken_rows(
    path: Path, frame: pd.DataFrame, reasons: dict[int, list[str]], config: DataConfig, out_dir: Path
) -> DataError:
    broken = frame.iloc[list(reasons)].assign(reason=["; ".join(texts) for texts in reasons.values()])
    share = len(reasons) / len(frame)
    return DataError(
        f"{len(reasons)} of {len(frame)} rows of {path} ({share:.1%}) break a rule: "
        f"{' | '.join(examples(broken))}.",
        f"Expected at most {config.quarantine_share:.1%} (data.quarantine_share) and one valid episode.",
        "Correct these rows, or take only the clean episodes with data.quarantine_share=1. "
        f"All of them are in {out_dir / 'quarantine.parquet'}, the rules in "
        f"{out_dir / 'data_docs' / 'index.html'}.",
    )
