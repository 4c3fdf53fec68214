"""Which trajectories a retraining has started with, kept on the Prefect server for the watch.

The watch compares with what a retraining *started* with, not with what it saw last: data that changed while a
run held the deployment's one slot is then still new when the slot is free.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from prefect import get_client
from prefect.client.schemas.filters import (
    DeploymentFilter,
    DeploymentFilterName,
    FlowRunFilter,
    FlowRunFilterExpectedStartTime,
    FlowRunFilterState,
    FlowRunFilterStateType,
)
from prefect.client.schemas.objects import StateType
from prefect.variables import Variable

from components.config import Config

VARIABLE = "dreamgym_trajectories"
"""Begins the name of a Prefect variable: the DVC hash of an environment's trajectories last trained on."""
ACTIVE = [StateType.PENDING, StateType.RUNNING, StateType.CANCELLING]


def trained_on(config: Config) -> str:
    """The hash that was noted for the config's environment; empty before the first."""
    value: Any = Variable.get(f"{VARIABLE}_{config.environment.name}", default="")
    return str(value)


def note_trained_on(config: Config, trajectories: str) -> None:
    """A retraining starts with these trajectories, or the watch begins with them."""
    Variable.set(f"{VARIABLE}_{config.environment.name}", trajectories, overwrite=True)


def retraining_in_progress(deployment: str) -> str:
    """The name of a run of the deployment that has begun, or is due and waits for a worker; empty if none."""
    named = DeploymentFilter(name=DeploymentFilterName(any_=[deployment]))
    begun = FlowRunFilter(state=FlowRunFilterState(type=FlowRunFilterStateType(any_=ACTIVE)))
    due = FlowRunFilter(
        state=FlowRunFilterState(type=FlowRunFilterStateType(any_=[StateType.SCHEDULED])),
        expected_start_time=FlowRunFilterExpectedStartTime(before_=datetime.now(UTC)),
    )
    with get_client(sync_client=True) as client:
        for wanted in (begun, due):
            for run in client.read_flow_runs(deployment_filter=named, flow_run_filter=wanted, limit=1):
                return str(run.name)
    return ""
