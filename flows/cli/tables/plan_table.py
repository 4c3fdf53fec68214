"""What a run would do, stage by stage: printed by `retrain --dry-run` and by `resume`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from flows.printing.formats import seconds_text
from flows.printing.output import Output
from flows.printing.table import Cell, Column, Table

if TYPE_CHECKING:
    from components.tracking.manifest import Manifest
    from flows.run.plan import StagePlan

FATES = {
    "reused": "green",
    "goes on": "yellow",
    "made": "yellow",
    "made again": "red",
    "open": "dim",
    "stops": "red",
}
"""What happens to a stage -> colour of the cell."""


def print_plan(page: Output, manifest: Manifest, steps: Sequence[StagePlan]) -> None:
    """Print what happens to each stage of an earlier run if it is resumed now."""
    print_stages(page, f"Run {manifest.run_id} ({manifest.status}), resumed today", steps)
    page.put(run=manifest.run_id, status=manifest.status)


def print_stages(page: Output, title: str, steps: Sequence[StagePlan]) -> None:
    """Print what happens to each stage, how long it took last time, and why.

    The JSON has every change of a stage's key.
    """
    from flows.run.plan import reasons, seconds_to_run

    columns = [
        Column("stage"),
        Column("what happens"),
        Column("last time", right=True),
        Column("why", prose=True),
    ]
    rows = [
        [
            step.name,
            Cell(step.fate, style=FATES[step.fate]),
            seconds_text(step.seconds),
            "\n".join(reasons(step)),
        ]
        for step in steps
    ]
    page.table("", Table(title, columns, rows))
    seconds = seconds_to_run(steps)
    page.put(stages=[step.to_json() for step in steps], seconds_to_run=seconds)
    stages_to_run = [step.name for step in steps if step.fate not in ("reused", "stops")]
    if not stages_to_run:
        page.text("No stage runs.")
    elif seconds is None:
        page.text(
            f"Stages that run: {len(stages_to_run)}. How long they take is unknown: at least one has never "
            "run here."
        )
    else:
        page.text(f"Stages that run: {len(stages_to_run)}. Last time they took {seconds_text(seconds)}.")
