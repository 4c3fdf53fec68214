"""Stage 1: check the offline data, set bad episodes aside, and hand on the clean ones."""

from __future__ import annotations

from pathlib import Path

from prefect import flow

from components.evaluation.intervals import exact, proportion
from components.tracking.hashes import file_hash
from components.tracking.stages import StageResult
from components.trajectories.snapshots import data_hash
from components.trajectories.store import read_tasks
from flows.workspace import OF_RUN, Outcome, Workspace


@flow(name="validate", flow_run_name=OF_RUN, validate_parameters=False)
def validate_data(run: Workspace) -> StageResult:
    """Clean training and fidelity trajectories, the quarantine, and Data Docs."""
    names = ("train", "fidelity", "test")
    inputs = {f"tasks/{name}": file_hash(run.data.tasks(name)) for name in names}
    inputs |= {f"trajectories/{name}": file_hash(run.data.trajectories(name)) for name in names[:2]}
    return run.stage(
        "validate",
        lambda work: _validate(run, work),
        inputs=inputs,
        config=run.slice("data"),
        code=["flows.validate"],
    )


def _validate(run: Workspace, work: Path) -> Outcome:
    from components.trajectories.validation import validate

    tasks = {name: read_tasks(run.data.tasks(name)) for name in ("train", "fidelity", "test")}
    outcome = Outcome({})
    for name in ("train", "fidelity"):
        title = f"{run.data.root.name} {name} trajectories, data {data_hash(run.root)[:12]}, run {run.label}"
        options = {"split": name, "title": title, "run_name": run.manifest.run_id}
        report = validate(run.data.trajectories(name), tasks, run.config.data, work / name, **options)
        bad = report.rows - report.valid_rows
        outcome.metrics[f"validate/quarantined_share/{name}"] = proportion(bad, report.rows)
        outcome.metrics[f"validate/rows/{name}"] = exact(report.rows)
        outcome.outputs |= {name: f"{name}/transitions.parquet", f"{name}_docs": f"{name}/data_docs"}
    return outcome
