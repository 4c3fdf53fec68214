"""The one entry to MLflow: runs and their stages, metrics, data sets, and the registry of models.

To look at what it wrote: `mlflow ui --backend-store-uri sqlite:///mlflow/mlflow.db`.
"""

from __future__ import annotations

from components.tracking.mlflow_adapter.model_registry import ModelRegistry
from components.tracking.mlflow_adapter.run_lifecycle import RunLifecycle
from components.tracking.mlflow_adapter.run_log import RunLog


class Tracker(RunLifecycle, RunLog, ModelRegistry):
    """Runs and models of one MLflow experiment.

    Every method raises TrackingError, with what to do, if MLflow refuses. It raises ServiceUnreachable if
    MLflow does not answer.
    """
