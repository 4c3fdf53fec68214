"""Great Expectations over recorded transitions: what breaks a rule is set aside with its reason, and many
such rows stop the run.

Rules that span rows (step order, state chain ...) are computed as true/false columns first and then expected
to be true, so that every rule stands in the Data Docs. A row that breaks a rule takes its whole episode
along: a trajectory with a hole is none. Text that spells a reserved marker is counted, not refused: it is
encoded as plain text later.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, get_args

import pandas as pd
import pyarrow as pa

from components.config import DataConfig
from components.config.worlds.environment_config import EnvironmentConfig
from components.errors import DataError
from components.language.markers import MARKERS
from components.records import REAL, SYNTHETIC, TRAIN, Task, Transition
from components.trajectories import store
from components.trajectories.columns import ColumnProblem, Columns, examine, refused
from components.trajectories.data_docs import Rule, make_local

ENVIRONMENTS = get_args(EnvironmentConfig.model_fields["name"].annotation)
_TEXTS = ("state", "action", "next_state")
ANOTHER_STEP = "another step of the episode is invalid"
_ACROSS_ROWS = {  # rule: (the column whose value is shown with a broken row, what is expected)
    "step_follows": ("step", "The steps of an episode are 0, 1, 2 ... in the order of the file."),
    "state_follows": ("state", "A state is the next state of the step before it."),
    "start_is_the_tasks": ("state", "The first state of an episode is its task's initial state."),
    "action_has_words": ("action", "An action is more than blanks."),
    "reward_ends": ("reward", "A rewarded step is terminal."),
    "end_is_last": ("done", "Only the last step of an episode is terminal."),
    "reward_is_last": ("reward", "Only the last step of an episode is rewarded."),
    "episode_has_one_task": ("task_id", "All steps of an episode have the same task."),
    "task_is_known": ("task_id", "The task is in one of the files of tasks."),
    "environment_is_known": ("task_id", "The task belongs to a known environment."),
    "task_is_not_held_out": ("task_id", "The task is not held out: it belongs to no other split."),
}


@dataclass(frozen=True)
class Check:
    """One rule: whether all rows keep it, and how many do not (of `markers_spelled`, which never fails: how
    many there are).
    """

    name: str
    success: bool
    unexpected: int
    sentence: str


@dataclass(frozen=True)
class ValidationReport:
    """What validation found. `share` is that of rows that break a rule; `quarantined` also has the rest of
    their episodes.

    `columns` says which columns of the file were cast, and which are not read.
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
    """Check the transitions of the tasks of `split`; tasks of the other splits are held out from them.

    Args: title: the data set and its version, as the Data Docs name it; run_name: the run that they belong
    to.

    Writes `transitions.parquet` (the clean episodes), `quarantine.parquet` (the others, with `reason`) and
    `data_docs/index.html` into `out_dir`.

    Raises:
        DataError: the file is missing, damaged or has other columns; more than `config.quarantine_share` of
            the rows break
            a rule (the first five are named); or no row is left.
    """
    docs, clean_path = out_dir / "data_docs", out_dir / "transitions.parquet"
    title, run_name = title or transitions_path.stem, run_name or "dreamgym-validate"
    shutil.rmtree(docs, ignore_errors=True)
    clean_path.unlink(missing_ok=True)
    raw = store.read_table(transitions_path)
    context = _context(docs)
    columns, problems = examine(raw, store.TRANSITION_SCHEMA, store.TRANSITION_DEFAULTS)
    checks = _check_columns(context, problems, run_name)
    facts = [("file", str(transitions_path)), ("run", run_name), ("rows", f"{raw.num_rows:,}")]
    if problems:
        make_local(docs, title, facts, _rules(checks))
        raise refused(transitions_path, problems)
    table = columns.table
    frame = table.to_pandas(ignore_metadata=True)
    with_rules = _with_rules(frame, tasks_by_split, split, environments)
    results = _run(context, "transitions", with_rules, _row_expectations(config), run_name)
    checks += [_check(result) for result in results]
    reasons = _reasons(results, frame)
    quarantined = _quarantined(frame, reasons)
    store.write_frame(out_dir / "quarantine.parquet", quarantined)
    share = len(reasons) / len(frame)
    clean = frame.drop(index=quarantined.index)
    shutil.rmtree(docs / "static", ignore_errors=True)  # pictures and fonts of Great Expectations' own pages
    facts += [
        ("rows that break a rule", f"{len(reasons):,}"),
        ("rows set aside with their episodes", f"{len(quarantined):,}"),
    ]
    make_local(docs, title, facts, _rules(checks))
    if share > config.quarantine_share or clean.empty:
        raise _too_many(transitions_path, frame, reasons, share, config, out_dir)
    store.write_transitions(clean_path, _transitions(table, clean.index))
    return ValidationReport(
        len(frame), len(clean), quarantined, share, checks, docs / "index.html", clean_path, columns
    )


def _transitions(table: pa.Table, rows: pd.Index) -> list[Transition]:
    columns = table.select(store.TRANSITION_SCHEMA.names).take(pa.array(rows)).columns
    return [Transition(*row) for row in zip(*(column.to_pylist() for column in columns), strict=True)]


def _with_rules(
    frame: pd.DataFrame,
    tasks_by_split: Mapping[str, Sequence[Task]],
    split: str,
    environments: Collection[str],
) -> pd.DataFrame:
    """The frame with a column for each rule that spans rows or files, and `row`, the place in the file."""
    home = {task.id: task.environment for tasks in tasks_by_split.values() for task in tasks}
    starts = frame["task_id"].map(
        {task.id: task.initial_state for tasks in tasks_by_split.values() for task in tasks}
    )
    held_out = {task.id for name, tasks in tasks_by_split.items() if name != split for task in tasks}
    episodes = frame.groupby("episode_id", sort=False, dropna=False)
    number = episodes.cumcount()
    last = number == episodes["episode_id"].transform("size") - 1
    return frame.assign(
        row=range(len(frame)),
        step_follows=frame["step"] == number,
        state_follows=(frame["state"] == episodes["next_state"].shift()).fillna(False).astype(bool)
        | (number == 0),
        start_is_the_tasks=(number > 0)
        | starts.isna()
        | (frame["state"] == starts).fillna(False).astype(bool),
        action_has_words=(frame["action"] == "")
        | (frame["action"].astype("str").str.strip() != ""),  # an empty one has a rule of its own
        reward_ends=~(frame["reward"] > 0) | (frame["done"] != False),  # noqa: E712  (a missing value has a rule of its own)
        end_is_last=last | (frame["done"] != True),  # noqa: E712  (a missing value is no end)
        reward_is_last=last | ~(frame["reward"] > 0),
        episode_has_one_task=episodes["task_id"].transform("nunique") <= 1,
        task_is_known=frame["task_id"].isin(list(home)),
        environment_is_known=frame["task_id"]
        .map(lambda task: home.get(task) in environments or task not in home)
        .astype(bool),
        task_is_not_held_out=~frame["task_id"].isin(list(held_out)),
        markers_spelled=_spells_marker(frame).astype(int),
    )


def _spells_marker(frame: pd.DataFrame) -> pd.Series:
    letters = "|".join(re.escape(str(marker)) for marker in MARKERS)
    return (
        frame[[*_TEXTS, "reasoning"]]
        .apply(lambda column: column.astype("str").str.contains(letters, regex=True))
        .any(axis=1)
    )


def _row_expectations(config: DataConfig) -> list[Any]:
    from great_expectations import expectations as gxe

    longest = config.max_text_chars
    rules: list[Any] = [
        gxe.ExpectColumnValuesToNotBeNull(
            column=name, notes=f"Each row has a value in {name}.", meta={"check": f"{name}_is_present"}
        )
        for name in store.TRANSITION_SCHEMA.names
    ]
    for name in _TEXTS:
        notes, meta = (
            f"The text in {name} has 1 to {longest} characters (data.max_text_chars).",
            {"check": f"{name}_length"},
        )
        rules.append(
            gxe.ExpectColumnValueLengthsToBeBetween(
                column=name, min_value=1, max_value=longest, notes=notes, meta=meta
            )
        )
    for name, values in (("reward", [0.0, 1.0]), ("source", [REAL, SYNTHETIC])):
        notes, meta = f"A {name} is {values[0]} or {values[1]}.", {"check": f"{name}_value"}
        rules.append(gxe.ExpectColumnValuesToBeInSet(column=name, value_set=values, notes=notes, meta=meta))
    pair, meta = ["episode_id", "step"], {"check": "step_is_unique"}
    rules.append(
        gxe.ExpectCompoundColumnsToBeUnique(column_list=pair, notes="No step is recorded twice.", meta=meta)
    )
    for name, (_, notes) in _ACROSS_ROWS.items():
        rules.append(
            gxe.ExpectColumnValuesToBeInSet(column=name, value_set=[True], notes=notes, meta={"check": name})
        )
    notes, meta = (
        "How many rows spell a reserved marker (encoded as plain text later).",
        {"check": "markers_spelled"},
    )
    rules.append(
        gxe.ExpectColumnSumToBeBetween(column="markers_spelled", min_value=0, notes=notes, meta=meta)
    )
    return rules


def _rules(checks: list[Check]) -> list[Rule]:
    return [Rule(check.name, check.sentence, check.success, check.unexpected) for check in checks]


def _check_columns(context: Any, problems: list[ColumnProblem], run_name: str) -> list[Check]:
    """Expect each column to be readable; without the right columns no other rule can be asked."""
    from great_expectations import expectations as gxe

    wrong = {problem.column: problem for problem in problems}
    kinds = [
        (name, wrong[name].found if name in wrong else "readable", "readable")
        for name in store.TRANSITION_SCHEMA.names
    ]
    frame = pd.DataFrame(kinds, columns=["row", "found", "expected"])
    notes, meta = (
        "Each column of a transition is there, and can be read without changing a value.",
        {"check": "columns"},
    )
    rule = gxe.ExpectColumnPairValuesToBeEqual(column_A="found", column_B="expected", notes=notes, meta=meta)
    return [_check(result) for result in _run(context, "columns", frame, [rule], run_name)]


def _context(docs: Path) -> Any:
    """A Great Expectations context in memory that writes its Data Docs to `docs`, asks nobody and shows no
    progress bars.
    """
    os.environ["GX_ANALYTICS_ENABLED"] = "false"
    import great_expectations as gx
    from great_expectations.data_context.types.base import ProgressBarsConfig

    context = gx.get_context(mode="ephemeral")
    context.variables.progress_bars = ProgressBarsConfig(globally=False)
    literal = str(docs.absolute()).replace(
        "$", r"\$"
    )  # Great Expectations replaces $NAME by a variable of the environment
    place = {"class_name": "TupleFilesystemStoreBackend", "base_directory": literal}
    for name in context.get_site_names():
        context.delete_data_docs_site(name)
    index = {"class_name": "DefaultSiteIndexBuilder"}
    context.add_data_docs_site(
        "docs", {"class_name": "SiteBuilder", "site_index_builder": index, "store_backend": place}
    )
    return context


def _run(context: Any, name: str, frame: pd.DataFrame, expectations: list[Any], run_name: str) -> list[Any]:
    """Test one table, put it into the Data Docs, and return a result an expectation."""
    import great_expectations as gx
    from great_expectations.checkpoint import UpdateDataDocsAction

    asset = context.data_sources.add_pandas(name).add_dataframe_asset(name)
    suite = context.suites.add(gx.ExpectationSuite(name=name, expectations=expectations))
    data = asset.add_batch_definition_whole_dataframe(name)
    definition = context.validation_definitions.add(
        gx.ValidationDefinition(name=name, data=data, suite=suite)
    )
    checkpoint = gx.Checkpoint(
        name=name,
        validation_definitions=[definition],
        actions=[UpdateDataDocsAction(name="docs", site_names=["docs"])],
        result_format={"result_format": "COMPLETE", "unexpected_index_column_names": ["row"]},
    )
    # Great Expectations reads a time out of a name that looks like one, and fails where its offset from UTC
    # is impossible.
    named = run_name if run_name[:1].isalpha() else f"run-{run_name}"
    identity = gx.RunIdentifier(run_name=named, run_time=datetime.now(UTC))
    outcome = context.checkpoints.add(checkpoint).run(batch_parameters={"dataframe": frame}, run_id=identity)
    return [result for run in outcome.run_results.values() for result in run.results]


def _check(result: Any) -> Check:
    if result.exception_info and result.exception_info.get("raised_exception"):
        raise RuntimeError(
            f"The expectation {result.expectation_config.meta['check']} broke: {result.exception_info}"
        )
    name = result.expectation_config.meta["check"]
    count = (
        result.result["observed_value"]
        if name == "markers_spelled"
        else result.result.get("unexpected_count", 0)
    )
    return Check(name, bool(result.success), int(count), str(result.expectation_config.notes))


def _reasons(results: list[Any], frame: pd.DataFrame) -> dict[int, list[str]]:
    """Row -> the rules it breaks, with the value that breaks them, in the order of the file."""
    reasons: dict[int, list[str]] = {}
    for result in results:
        check = result.expectation_config.meta["check"]
        column = (
            _ACROSS_ROWS[check][0]
            if check in _ACROSS_ROWS
            else result.expectation_config.kwargs.get("column", "step")
        )
        for place in result.result.get("unexpected_index_list") or []:
            row = int(place["row"])
            sentence = str(result.expectation_config.notes).rstrip(".")
            reasons.setdefault(row, []).append(
                f"{check} ({column}: {str(frame[column].iloc[row])[:60]!r}): {sentence}"
            )
    return dict(sorted(reasons.items()))


def _quarantined(frame: pd.DataFrame, reasons: dict[int, list[str]]) -> pd.DataFrame:
    """The broken rows and the rest of their episodes, with `reason`."""
    episodes = frame["episode_id"].iloc[list(reasons)].dropna()
    aside = frame.index.isin(list(reasons)) | frame["episode_id"].isin(episodes)
    reason = ["; ".join(reasons.get(row, [ANOTHER_STEP])) for row in frame.index[aside]]
    return frame[aside].assign(reason=pd.Series(reason, index=frame.index[aside], dtype="str"))


def examples(quarantined: pd.DataFrame, count: int = 5) -> list[str]:
    """The first broken row of up to `count` episodes, those of rules not shown yet first: which step, which
    rule, which value.
    """
    broken = quarantined[quarantined["reason"] != ANOTHER_STEP]
    rows = broken[~broken["episode_id"].duplicated()]
    rule = rows["reason"].str.partition(" ")[0]
    chosen = pd.concat([rows[~rule.duplicated()], rows[rule.duplicated()]]).head(count)
    return [
        f"episode {row['episode_id']} step {_number(row['step'])}: {row['reason']}"
        for _, row in chosen.iterrows()
    ]


def _number(step: Any) -> str:
    return "without a number" if pd.isna(step) else f"{step:g}"


def _too_many(
    path: Path,
    frame: pd.DataFrame,
    reasons: dict[int, list[str]],
    share: float,
    config: DataConfig,
    out_dir: Path,
) -> DataError:
    first = examples(
        frame.iloc[list(reasons)].assign(reason=["; ".join(given) for given in reasons.values()])
    )
    found = f"{len(reasons)} of {len(frame)} rows of {path} ({share:.1%}) break a rule: {' | '.join(first)}."
    cure = "Correct these rows, or take the clean episodes alone with data.quarantine_share=1."
    next_step = (
        f"{cure} All of them are in {out_dir / 'quarantine.parquet'}, the rules in "
        f"{out_dir / 'data_docs' / 'index.html'}."
    )
    return DataError(
        found,
        f"Expected at most {config.quarantine_share:.1%} (data.quarantine_share) and one valid episode.",
        next_step,
    )
