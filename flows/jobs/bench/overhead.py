"""`dreamgym bench overhead`: the share of a run's wall time that is spent outside its stages.

    dreamgym bench overhead

It includes the start of the interpreter and the libraries, Prefect's server, MLflow, hashes of inputs and
outputs, DVC's snapshot and experiment commit, and the report. The times are read from the manifest of a
finished run that reused no stage.
"""

from __future__ import annotations

from pathlib import Path

from components.errors import DataError
from components.evaluation.metrics.intervals import Estimate, exact_value
from components.tracking.manifest import Manifest
from components.tracking.runs import list_runs
from flows.printing.output import Output
from flows.printing.table import Column, Table

TARGET = 0.05
"""Largest acceptable share."""


def bench_overhead(root: Path) -> tuple[str, dict[str, Estimate]]:
    """Return the newest finished run of `retrain` that reused no stage, and its figures.

    The figures are `seconds`, `seconds/<stage>`, `overhead` and `overhead_share`.

    Raises:
        DataError: there is no such run.
    """
    for name in reversed(list_runs(root / "runs")):
        try:
            manifest = Manifest.load(root / "runs" / name)
        except DataError:
            continue  # it was interrupted before it had one
        is_finished = manifest.flow == "retrain" and manifest.status == "finished" and manifest.seconds > 0
        if is_finished and not any(stage.reused for stage in manifest.stages):
            stages = {stage.name: stage.seconds for stage in manifest.stages}
            overhead = manifest.seconds - sum(stages.values())
            figures = {
                "seconds": manifest.seconds,
                "overhead": overhead,
                "overhead_share": overhead / manifest.seconds,
            }
            figures |= {f"seconds/{stage}": seconds for stage, seconds in stages.items()}
            return name, {name: exact_value(value) for name, value in figures.items()}
    raise DataError(
        "There is no finished run of `dreamgym retrain` here that reused no stage.",
        "With reused stages the wall time does not contain them.",
        "Type `dreamgym retrain seed=7`, a new seed.",
    )


def print_overhead(page: Output, run: str, metrics: dict[str, Estimate]) -> None:
    """Print the time of each stage, and the rest."""
    total = metrics["seconds"].value
    rows = [
        [name.removeprefix("seconds/"), f"{estimate.value:.1f}", f"{estimate.value / total:.1%}"]
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
    rows.append(["total", f"{total:.1f}", ""])
    columns = [Column("stage"), Column("seconds", right=True), Column("share", right=True)]
    page.table("", Table(f"Wall time of run {run}", columns, rows))
    page.text(f"Target: at most {TARGET:.0%} outside the stages. One run, so there is no interval.")
