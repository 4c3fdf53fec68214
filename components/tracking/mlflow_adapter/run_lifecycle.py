"""Start, tag, find and end MLflow runs and the runs of their stages, and build links to their pages."""

from __future__ import annotations

import getpass
import json
from collections.abc import Iterator, Mapping
from typing import Any, Literal

from mlflow.entities import Param, RunTag

from components.tracking.mlflow_adapter import runs_view
from components.tracking.mlflow_adapter.connection import Connection
from components.tracking.mlflow_adapter.mlflow_uri import without_password
from components.tracking.process import this_process

PARENT_TAG = "mlflow.parentRunId"
GIT_COMMIT_TAG = "mlflow.source.git.commit"
NOTE_TAG = "mlflow.note.content"
PROCESS_TAG = "dreamgym.process"
CLONE_TAG = "dreamgym.clone"
_PARAMS_PER_CALL = 100
_MAX_PARAM_CHARS = 6000
_MAX_KEY_CHARS = 250
_MAX_TAG_CHARS = 5000
_MAX_RUNS = 1000


class RunLifecycle(Connection):
    """Runs of the experiment, from start to end. Every call names the run that it is about."""

    def start_run(
        self, name: str, tags: Mapping[str, str] | None = None, params: Mapping[str, Any] | None = None
    ) -> str:
        """Start a parent run and return its id.

        Nested `params` are flattened with dots, and values that are too long are cut. The run's tags name
        this process and this clone. `dead_runs.py` ends the run by them if the process was killed.
        """
        own_tags = {PROCESS_TAG: this_process().text, CLONE_TAG: str(self.root)}
        with self.reporting_errors("start a run"):
            runs_view.save_view(self.client, self.experiment_id)
            run_id = self._create_run(name, {**(tags or {}), **own_tags})
            self._log_params(run_id, params or {})
            return run_id

    def start_stage(self, parent: str, name: str, tags: Mapping[str, str] | None = None) -> str:
        """Start a run nested below `parent` and return its id."""
        with self.reporting_errors(f"start the stage {name}"):
            return self._create_run(name, {**(tags or {}), PARENT_TAG: parent})

    def page(self, address: str) -> str:
        """URL of the table of runs on the MLflow server at `address`, with the columns of `runs_view.py`."""
        with self.reporting_errors("offer a view of the runs"):
            runs_view.save_view(self.client, self.experiment_id)
        return runs_view.runs_page_url(address, self.experiment_id)

    def artifact_page(self, run_id: str, name: str, local: str) -> str:
        """URL of a run's artifact in a browser.

        The URL is on the server that records the runs. For a local store it is on the server at `local`.
        """
        is_server = self.uri.startswith(("http://", "https://"))
        address = without_password(self.uri).rstrip("/") if is_server else local
        return runs_view.artifact_url(address, self.experiment_id, run_id, name)

    def set_tags(self, run_id: str, tags: Mapping[str, str]) -> None:
        """Set tags of a run. Values that are too long are cut."""
        run_tags = [RunTag(key, _cut(value, _MAX_TAG_CHARS)) for key, value in tags.items()]
        with self.reporting_errors("set tags"):
            self.client.log_batch(run_id, tags=run_tags)

    def describe(self, run_id: str, markdown: str) -> None:
        """Set the text that MLflow's page of the run shows above all numbers."""
        self.set_tags(run_id, {NOTE_TAG: markdown})

    def finish(self, run_id: str, status: Literal["FINISHED", "FAILED", "KILLED"] = "FINISHED") -> None:
        """End a run."""
        with self.reporting_errors("end a run"):
            self.client.set_terminated(run_id, status)

    def running(self) -> dict[str, dict[str, str]]:
        """Tags of each run of the experiment that has not ended, by run id; at most a thousand runs."""
        with self.reporting_errors("look for running runs"):
            runs = self.client.search_runs(
                [self.experiment_id], "attributes.status = 'RUNNING'", max_results=_MAX_RUNS
            )
            return {run.info.run_id: dict(run.data.tags) for run in runs}

    def kill(self, run_id: str, note: str) -> None:
        """End a run whose process is gone, and its stages that are still running, with the status KILLED.

        Args:
            note: text for the top of the run's page.
        """
        with self.reporting_errors("end a killed run"):
            running_stages = f"tags.`{PARENT_TAG}` = '{run_id}' and attributes.status = 'RUNNING'"
            stages = self.client.search_runs([self.experiment_id], running_stages, max_results=_MAX_RUNS)
            for killed_id in (*(stage.info.run_id for stage in stages), run_id):
                self.client.set_terminated(killed_id, "KILLED")
        self.describe(run_id, note)

    def _create_run(self, name: str, tags: Mapping[str, str]) -> str:
        all_tags = {
            "mlflow.user": _user_name(),
            "mlflow.source.name": "dreamgym",
            "mlflow.source.type": "LOCAL",
            **tags,
        }
        cut_tags = {key: _cut(value, _MAX_TAG_CHARS) for key, value in all_tags.items()}
        return str(self.client.create_run(self.experiment_id, tags=cut_tags, run_name=name).info.run_id)

    def _log_params(self, run_id: str, params: Mapping[str, Any]) -> None:
        flat = [
            Param(_cut(key, _MAX_KEY_CHARS), _cut(value, _MAX_PARAM_CHARS)) for key, value in _flatten(params)
        ]
        for start in range(0, len(flat), _PARAMS_PER_CALL):
            self.client.log_batch(run_id, params=flat[start : start + _PARAMS_PER_CALL])


def _flatten(values: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, str]]:
    """(dotted key, text) of each leaf of a nested mapping."""
    for key, value in values.items():
        if isinstance(value, Mapping):
            yield from _flatten(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value if isinstance(value, str) else json.dumps(value, default=str)


def _cut(text: Any, limit: int) -> str:
    text = str(text)
    return text if len(text) <= limit else text[: limit - 1] + "…"


def _user_name() -> str:
    try:
        return getpass.getuser()
    except (OSError, KeyError):
        return "unknown"
