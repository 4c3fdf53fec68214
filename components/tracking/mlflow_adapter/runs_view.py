"""The saved view of MLflow's page of runs: the columns that compare retrainings, instead of every metric.

A saved view is a tag of the experiment. The page reads the tag if its address names the view. Changes of
columns in the browser stay with the user who makes them; this view stays as the code defines it.
"""

from __future__ import annotations

import json

from mlflow import MlflowClient

NAME = "dreamgym"
TAG = f"mlflow.sharedViewState.{NAME}"
METRICS = (
    "evaluate/success_rate",  # a run of a study has only this one
    "evaluate/cloned/success_rate",
    "evaluate/dreamed/success_rate",
    "evaluate/refined/success_rate",
    "fidelity/next_state_exact/determined",
    "fidelity/reward_precision",
    "fidelity/rollout_agreement/dreamed",
    "cost/real_interactions",
    "cost/check_interactions",
)
PARAMS = ("seed", "rl.dream.algorithm.type", "environment.name")


def view_state() -> str:
    """The view in MLflow's JSON."""
    columns = [
        "attributes.`Dataset`",
        *(f"metrics.`{name}`" for name in METRICS),
        *(f"params.`{name}`" for name in PARAMS),
    ]
    return json.dumps(
        {"selectedColumns": columns, "orderByKey": "attributes.start_time", "orderByAsc": False}
    )


def save_view(client: MlflowClient, experiment_id: str) -> None:
    """Save the view with the experiment, unless it is already saved."""
    if client.get_experiment(experiment_id).tags.get(TAG) != view_state():
        client.set_experiment_tag(experiment_id, TAG, view_state())


def runs_page_url(address: str, experiment_id: str) -> str:
    """URL of the experiment's runs in this view, on the MLflow server at `address`."""
    return f"{address}/#/experiments/{experiment_id}/runs?viewStateShareKey={NAME}"


def artifact_url(address: str, experiment_id: str, run_id: str, name: str) -> str:
    """URL of an artifact of a run, on the MLflow server at `address`."""
    return f"{address}/#/experiments/{experiment_id}/runs/{run_id}/artifacts/{name}"
