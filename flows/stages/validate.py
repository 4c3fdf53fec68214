"""Step 1: check the offline data, and set aside episodes that break a rule."""

from __future__ import annotations

from functools import partial
from pathlib import Path

from components.evaluation.metrics.intervals import exact_value, proportion
from components.trajectories.dvc.snapshots import data_hash
from components.trajectories.store import read_tasks
from flows.run.pipeline_run import Run
from flows.run.stage import Inputs, Outcome, Stage, stage_flow

VALIDATED = ("train", "fidelity")
"""Data sets whose trajectories are checked."""


@stage_flow("validate")
def validate_data(run: Run) -> Stage:
    """Stage: valid trajectories of training and fidelity tasks, the rows set aside, and Data Docs."""
    tasks = {f"tasks/{name}": run.data.tasks(name) for name in (*VALIDATED, "test")}
    trajectories = {f"trajectories/{name}": run.data.trajectories(name) for name in VALIDATED}
    return Stage(
        "validate",
        work=partial(_validate, run),
        inputs=tasks | trajectories,
        config=run.slice("data"),
        code=__name__,
    )


def _validate(run: Run, inputs: Inputs, work: Path) -> Outcome:
    from components.trajectories.validation import validate

    tasks = {name: read_tasks(inputs[f"tasks/{name}"]) for name in (*VALIDATED, "test")}
    outcome = Outcome({})
    for name in VALIDATED:
        title = f"{run.data.root.name} {name} trajectories, data {data_hash(run.root)[:12]}, run {run.label}"
        options = {"split": name, "title": title, "run_name": run.manifest.run_id}
        report = validate(inputs[f"trajectories/{name}"], tasks, run.config.data, work / name, **options)
        invalid_rows = report.rows - report.valid_rows
        outcome.metrics[f"validate/quarantined_share/{name}"] = proportion(invalid_rows, report.rows)
        outcome.metrics[f"validate/rows/{name}"] = exact_value(report.rows)
        outcome.outputs |= {name: f"{name}/transitions.parquet", f"{name}_docs": f"{name}/data_docs"}
    return outcome
