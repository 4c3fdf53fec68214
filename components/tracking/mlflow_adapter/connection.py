"""Connection to the MLflow store that holds one experiment, and translation of MLflow's errors.

Every call goes through a client with an explicit URI. There is no active run and no global tracking URI, so
threads and tests do not disturb each other. Importing this module takes about 3 s, because it imports MLflow.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from mlflow import MlflowClient
from mlflow.exceptions import MlflowException
from mlflow.protos.databricks_pb2 import RESOURCE_ALREADY_EXISTS, ErrorCode
from sqlalchemy.exc import SQLAlchemyError

from components.config import TrackingConfig
from components.errors import ServiceUnreachable, TrackingError
from components.tracking.mlflow_adapter.mlflow_uri import (
    artifact_location,
    exclusive_store_access,
    require_artifacts,
    require_reachable,
    resolve_uri,
    update_moved_locations,
    without_password,
)

ALREADY_EXISTS = ErrorCode.Name(RESOURCE_ALREADY_EXISTS)
_RETRY_ADVICE = (
    "Check that the server or database runs and is writable, then type the same command again: "
    "finished stages are reused."
)
_ALLOWED_HOSTS_ADVICE = (
    "Start the server with --allowed-hosts naming the host in the URI (mlflow/server.env)."
)
_NO_ANSWER_MESSAGES = (
    "Max retries exceeded",
    "Connection refused",
    "Connection reset",
    "Connection aborted",
    "timed out",
    "could not connect",
)
"""Texts in the errors of MLflow and of database drivers when nothing answers, after their own retries."""

for _logger_name in ("alembic", "mlflow", "mlflow.store.db.utils"):
    logging.getLogger(_logger_name).setLevel(logging.WARNING)


class Connection:
    """A client for one MLflow experiment, which is created if it does not exist.

    Raises:
        TrackingError: MLflow refuses, or the experiment is deleted.
        ServiceUnreachable: nothing answers at the URI.
    """

    def __init__(self, config: TrackingConfig, root: Path) -> None:
        self.uri = resolve_uri(config, root)
        self.experiment = config.experiment
        self.root = root.resolve()
        require_reachable(self.uri)
        with self.reporting_errors("open"), exclusive_store_access(self.uri):
            update_moved_locations(self.uri, root)
            self.client = MlflowClient(tracking_uri=self.uri, registry_uri=self.uri)
            self.experiment_id = self._find_or_create_experiment(root)

    @contextmanager
    def reporting_errors(self, action: str) -> Iterator[None]:
        """Turn errors of MLflow and its database into TrackingError or ServiceUnreachable.

        Args:
            action: what the calls inside do, as it follows "MLflow could not".
        """
        try:
            yield
        except (MlflowException, SQLAlchemyError, OSError) as error:
            lines = str(error).strip().splitlines() or [type(error).__name__]
            problem = f"MLflow at {without_password(self.uri)} could not {action}: {lines[0]}"
            is_unreachable = any(message in str(error) for message in _NO_ANSWER_MESSAGES)
            error_type = ServiceUnreachable if is_unreachable else TrackingError
            advice = _ALLOWED_HOSTS_ADVICE if "Host header" in problem else _RETRY_ADVICE
            raise error_type(problem, next_step=advice) from error

    def _find_or_create_experiment(self, root: Path) -> str:
        """The experiment's id. Another process may create it at the same moment."""
        experiment = self.client.get_experiment_by_name(self.experiment)
        if experiment is None:
            try:
                return str(self.client.create_experiment(self.experiment, artifact_location(self.uri, root)))
            except MlflowException as error:
                if error.error_code != ALREADY_EXISTS:
                    raise
                experiment = self.client.get_experiment_by_name(self.experiment)
        if experiment is None or experiment.lifecycle_stage != "active":
            restore = f"mlflow experiments restore -x {experiment.experiment_id if experiment else 'ID'}"
            next_step = (
                f"Restore it (MLFLOW_TRACKING_URI={without_password(self.uri)} {restore}) or set "
                "another tracking.experiment."
            )
            raise TrackingError(f"The MLflow experiment {self.experiment} is deleted.", next_step=next_step)
        require_artifacts(self.uri, root, experiment.artifact_location, self.experiment)
        return str(experiment.experiment_id)
