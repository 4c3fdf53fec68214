"""What `dreamgym deploy` prints: the deployments on the server and their schedules."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from flows.printing.output import Output
from flows.printing.table import Cell, Column, Table

if TYPE_CHECKING:
    from flows.deployment.deploy import Deployed


def print_deployments(page: Output, deployments: Sequence[Deployed]) -> None:
    """Print each deployment with its schedules, and the commands to type next."""
    columns = [Column("deployment"), Column("schedule", "schedules"), Column("is on", "active")]
    rows = [
        [
            deployment.name,
            Cell(list(deployment.schedules), ", ".join(deployment.schedules)),
            Cell(deployment.active, "on" if deployment.active else "off"),
        ]
        for deployment in deployments
    ]
    page.table("deployments", Table("Deployments on the server", columns, rows))
    page.text(
        "To execute them, type in this directory of the machine that runs them: "
        "prefect worker start --pool dreamgym"
    )
    if not any(deployment.active for deployment in deployments):
        page.text("No schedule is on. Switch one on: dreamgym deploy --on retrain")
