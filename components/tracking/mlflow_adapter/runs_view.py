"""The view in which MLflow's page of runs opens: the columns by which retrainings are compared, in place of
every metric there is.

A saved view is a tag of the experiment that the page reads when its address names the view. Whoever changes
columns in the browser keeps changes of their own; this view stays what the code says.
"""

from __future__ import annotations

import json

from mlflow import MlflowClient

NAME = "dreamgym"
TAG = f"mlflow.sharedViewState.{NAME}"
METRICS = (
    "evaluate/success_rate",  # of a study's cell
    *("evaluate/cloned/success_rate", "evaluate/dreamed/success_rate", "evaluate/refined/success_rate"),
    *(
        "fidelity/next_state_exact/determined",
        "fidelity/reward_precision",
        "fidelity/rollout_agreement/dreamed",
    ),
    *("cost/real_interactions", "cost/check_interactions"),
)
PARAMS = ("seed", "rl.dream.algorithm.type", "environment.name")


def state() -> str:
    """The view as MLflow keeps it."""
    columns = [
        "attributes.`Dataset`",
        *(f"metrics.`{name}`" for name in METRICS),
        *(f"params.`{name}`" for name in PARAMS),
    ]
    return json.dumps(
        {"selectedColumns": columns, "orderByKey": "attributes.start_time", "orderByAsc": False}
    )


def offer(client: MlflowClient, experiment_id: str) -> None:
    """Save the view with the experiment, unless it is there."""
    if client.get_experiment(experiment_id).tags.get(TAG) != state():
        client.set_experiment_tag(experiment_id, TAG, state())


def page(address: str, experiment_id: str) -> str:
    """Where a browser finds the runs in this view."""
    return f"{address}/#/experiments/{experiment_id}/runs?viewStateShareKey={NAME}"


def artifact(address: str, experiment_id: str, run_id: str, name: str) -> str:
    """Where a browser finds an artifact of a run."""
    return f"{address}/#/experiments/{experiment_id}/runs/{run_id}/artifacts/{name}"
