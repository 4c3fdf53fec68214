"""Run Great Expectations in memory: test a table, write the Data Docs, and return the results."""

from __future__ import annotations

import os
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pandas as pd

from components.trajectories.validation_rules import COMPUTED_RULES, MARKERS_SPELLED, Check

_MAX_VALUE_CHARS = 60


def open_context(docs: Path) -> Any:
    """A Great Expectations context that writes Data Docs to `docs`, without analytics and progress bars."""
    os.environ["GX_ANALYTICS_ENABLED"] = "false"
    import great_expectations as gx
    from great_expectations.data_context.types.base import ProgressBarsConfig

    context = gx.get_context(mode="ephemeral")
    context.variables.progress_bars = ProgressBarsConfig(globally=False)
    # Great Expectations replaces $NAME by an environment variable.
    escaped_path = str(docs.absolute()).replace("$", r"\$")
    backend = {"class_name": "TupleFilesystemStoreBackend", "base_directory": escaped_path}
    for name in context.get_site_names():
        context.delete_data_docs_site(name)
    index = {"class_name": "DefaultSiteIndexBuilder"}
    context.add_data_docs_site(
        "docs", {"class_name": "SiteBuilder", "site_index_builder": index, "store_backend": backend}
    )
    return context


def run_expectations(
    context: Any, name: str, frame: pd.DataFrame, expectations: list[Any], run_name: str
) -> list[Any]:
    """Test one table and add it to the Data Docs.

    Args:
        name: name of the table in the Data Docs.
        run_name: name of the run in the Data Docs.

    Returns:
        One result of Great Expectations for each expectation.
    """
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
    # Great Expectations parses a name that looks like a time, and fails if its UTC offset is impossible.
    safe_name = run_name if run_name[:1].isalpha() else f"run-{run_name}"
    identifier = gx.RunIdentifier(run_name=safe_name, run_time=datetime.now(UTC))
    outcome = context.checkpoints.add(checkpoint).run(
        batch_parameters={"dataframe": frame}, run_id=identifier
    )
    return [result for run in outcome.run_results.values() for result in run.results]


def check_of(result: Any) -> Check:
    """The check of one result of Great Expectations.

    Raises:
        RuntimeError: the expectation itself raised an exception.
    """
    name = result.expectation_config.meta["check"]
    if result.exception_info and result.exception_info.get("raised_exception"):
        raise RuntimeError(f"The expectation {name} broke: {result.exception_info}")
    if name == MARKERS_SPELLED:
        count = result.result["observed_value"]
    else:
        count = result.result.get("unexpected_count", 0)
    return Check(name, bool(result.success), int(count), str(result.expectation_config.notes))


def reasons_by_row(results: list[Any], frame: pd.DataFrame) -> dict[int, list[str]]:
    """Row -> the rules that it breaks, with the value that breaks them, in the order of the file."""
    reasons: dict[int, list[str]] = {}
    for result in results:
        check = result.expectation_config.meta["check"]
        if check in COMPUTED_RULES:
            column = COMPUTED_RULES[check][0]
        else:
            column = result.expectation_config.kwargs.get("column", "step")
        sentence = str(result.expectation_config.notes).rstrip(".")
        for index in result.result.get("unexpected_index_list") or []:
            row = int(index["row"])
            value = str(frame[column].iloc[row])[:_MAX_VALUE_CHARS]
            reasons.setdefault(row, []).append(f"{check} ({column}: {value!r}): {sentence}")
    return dict(sorted(reasons.items()))
