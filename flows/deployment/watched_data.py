"""The trajectories that the last retraining started with, stored on the Prefect server for `watch-data`.

The watch compares with these, not with those of its own last call. So data that changed while a run used the
deployment's one slot still counts as new when the slot is free.
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
"""Prefix of the name of a Prefect variable, the DVC hash of the trajectories last trained on.

The environment's name follows.
"""
ACTIVE = [StateType.PENDING, StateType.RUNNING, StateType.CANCELLING]


def trained_on(config: Config) -> str:
    """Return the hash stored for the config's environment; empty before the first."""
    value: Any = Variable.get(f"{VARIABLE}_{config.environment.name}", default="")
    return str(value)


def note_trained_on(config: Config, trajectories: str) -> None:
    """Store the hash of the trajectories that a retraining, or the first watch, starts with."""
    Variable.set(f"{VARIABLE}_{config.environment.name}", trajectories, overwrite=True)


def retraining_in_progress(deployment: str) -> str:
    """Return the name of a run of the deployment that runs or waits for a worker; empty if there is none."""
    of_deployment = DeploymentFilter(name=DeploymentFilterName(any_=[deployment]))
    active = FlowRunFilter(state=FlowRunFilterState(type=FlowRunFilterStateType(any_=ACTIVE)))
    due = FlowRunFilter(
        state=FlowRunFilterState(type=FlowRunFilterStateType(any_=[StateType.SCHEDULED])),
        expected_start_time=FlowRunFilterExpectedStartTime(before_=datetime.now(UTC)),
    )
    with get_client(sync_client=True) as client:
        for run_filter in (active, due):
            runs = client.read_flow_runs(deployment_filter=of_deployment, flow_run_filter=run_filter, limit=1)
            for run in runs:
                return str(run.name)
    return ""
