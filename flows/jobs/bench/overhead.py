"""What orchestration, tracking and versioning cost: the part of a run's wall time in which no stage computed.

    dreamgym bench overhead

Everything outside the stages counts: the interpreter and the libraries, Prefect's server, MLflow, hashes of
inputs and outputs, DVC's snapshot and its experiment commit, the report. It is read from the manifest of a
finished run that made all of its stages.
"""

from __future__ import annotations

from pathlib import Path

from components.errors import DataError
from components.evaluation.metrics.intervals import Estimate, exact
from components.tracking.manifest import Manifest
from components.tracking.runs import list_runs
from flows.printing.output import Column, Output, Table

TARGET = 0.05
"""Largest share that is worth it."""


def bench_overhead(root: Path) -> tuple[str, dict[str, Estimate]]:
    """The newest run of the main job that made all of its stages, and its figures.

    They are `seconds`, `seconds/<stage>`, `overhead` and `overhead_share`.

    Raises:
        DataError: there is no such run.
    """
    for name in reversed(list_runs(root / "runs")):
        try:
            manifest = Manifest.load(root / "runs" / name)
        except DataError:
            continue  # cut short before it had one
        whole = manifest.flow == "retrain" and manifest.status == "finished" and manifest.seconds > 0
        if whole and not any(stage.reused for stage in manifest.stages):
            stages = {stage.name: stage.seconds for stage in manifest.stages}
            rest = manifest.seconds - sum(stages.values())
            figures = {
                "seconds": manifest.seconds,
                "overhead": rest,
                "overhead_share": rest / manifest.seconds,
            }
            figures |= {f"seconds/{stage}": seconds for stage, seconds in stages.items()}
            return name, {name: exact(value) for name, value in figures.items()}
    found = "There is no finished run of `dreamgym retrain` here that made all of its stages."
    raise DataError(
        found,
        "Where stages are reused there is nothing to compare with.",
        "Type `dreamgym retrain seed=7`, a new seed.",
    )


def print_overhead(page: Output, run: str, metrics: dict[str, Estimate]) -> None:
    """Stage by stage, and what is left."""
    whole = metrics["seconds"].value
    rows = [
        [name.removeprefix("seconds/"), f"{estimate.value:.1f}", f"{estimate.value / whole:.1%}"]
        for name, estimate in metrics.items()
        if name.startswith("seconds/")
    ]
    rows.append(
        [
            "orchestration, tracking, versioning",
            f"{metrics['overhead'].value:.1f}",
            f"{metrics['overhead_share'].value:.1%}",
        ]
    )
    rows.append(["in all", f"{whole:.1f}", ""])
    columns = [Column("stage"), Column("seconds", right=True), Column("share", right=True)]
    page.table("", Table(f"Wall time of run {run}", columns, rows))
    page.text(f"Target: at most {TARGET:.0%} outside the stages. One run, so there is no interval.")
