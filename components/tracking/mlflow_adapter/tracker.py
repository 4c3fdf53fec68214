"""The one adapter to MLflow: runs and their stages, metrics, data sets, and the registry of models.

Every call names the run or the model it is about and goes through a client with an explicit URI: there is no
active run and no global tracking URI, so threads and tests do not disturb each other. Importing this module
takes about 3 s (MLflow). To look at what it wrote: `mlflow ui --backend-store-uri
sqlite:///mlflow/mlflow.db`.
"""

from __future__ import annotations

import getpass
import json
import logging
import re
import shutil
import tempfile
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import Any, Literal

import mlflow.artifacts
from mlflow import MlflowClient
from mlflow.entities import Dataset, DatasetInput, InputTag, LoggedModelOutput, Metric, Param, RunTag
from mlflow.exceptions import MlflowException
from mlflow.protos.databricks_pb2 import (
    INVALID_PARAMETER_VALUE,
    RESOURCE_ALREADY_EXISTS,
    RESOURCE_DOES_NOT_EXIST,
    ErrorCode,
)
from sqlalchemy.exc import SQLAlchemyError

from components.config import TrackingConfig
from components.errors import DataError, ServiceUnreachable, TrackingError
from components.tracking.curve_file import Point
from components.tracking.mlflow_adapter import runs_view as mlflow_view
from components.tracking.mlflow_adapter.dataset_schema import describe_parquet
from components.tracking.mlflow_adapter.metric_names import metric_name
from components.tracking.mlflow_adapter.mlflow_uri import (
    artifact_location,
    follow_move,
    opened_alone,
    require_artifacts,
    require_reachable,
    resolve_uri,
    without_password,
)
from components.tracking.process import this_process
from components.tracking.pyfunc.pyfunc_files import ServedModel, weights_of, write_model
from components.tracking.runs import Metrics
from components.tracking.stage_store.hashes import tree_hash

PARENT_TAG, GIT_COMMIT_TAG, CONTENT_TAG = "mlflow.parentRunId", "mlflow.source.git.commit", "content_sha256"
NOTE_TAG = "mlflow.note.content"
PROCESS_TAG, CLONE_TAG = "dreamgym.process", "dreamgym.clone"
FINAL = "_final"
_METRICS_A_BATCH, _PARAMS_A_BATCH, _PARAM_CHARS, _KEY_CHARS, _TAG_CHARS, _DIGEST_CHARS = (
    1000,
    100,
    6000,
    250,
    5000,
    36,
)
_AGAIN = (
    "See that the server or database runs and may be written to, then type the same command again: "
    "finished stages are reused."
)
_HOSTS = "Start the server with --allowed-hosts naming the host in the URI (mlflow/server.env)."
_SILENT = (
    "Max retries exceeded",
    "Connection refused",
    "Connection reset",
    "Connection aborted",
    "timed out",
    "could not connect",
)
"""What MLflow and the database's driver say where nobody answers, after tries of their own."""
_NO_SUCH = {ErrorCode.Name(RESOURCE_DOES_NOT_EXIST), ErrorCode.Name(INVALID_PARAMETER_VALUE)}

for _noisy in ("alembic", "mlflow", "mlflow.store.db.utils"):
    logging.getLogger(_noisy).setLevel(logging.WARNING)


class Tracker:
    """Runs and models of one MLflow experiment.

    Models are called by short names such as `policy`; in the registry they carry the experiment's name as a
    prefix. Every method raises TrackingError, saying what to do, if MLflow refuses, and ServiceUnreachable if
    it does not answer.
    """

    def __init__(self, config: TrackingConfig, root: Path) -> None:
        self.uri = resolve_uri(config, root)
        self.experiment = config.experiment
        self.root = root.resolve()
        require_reachable(self.uri)
        with self._reported("open"), opened_alone(self.uri):
            follow_move(self.uri, root)
            self.client = MlflowClient(tracking_uri=self.uri, registry_uri=self.uri)
            self.experiment_id = self._experiment_id(root)

    def start_run(
        self, name: str, tags: Mapping[str, str] | None = None, params: Mapping[str, Any] | None = None
    ) -> str:
        """Start a parent run and return its id; nested `params` are flattened with dots, over-long values
        cut.

        Its tags name this process and this clone, by which `dead_runs.py` ends it if the process is killed.
        """
        own = {PROCESS_TAG: this_process().text, CLONE_TAG: str(self.root)}
        with self._reported("start a run"):
            mlflow_view.offer(self.client, self.experiment_id)
            run_id = self._create_run(name, {**(tags or {}), **own})
            self._log_params(run_id, params or {})
            return run_id

    def start_stage(self, parent: str, name: str, tags: Mapping[str, str] | None = None) -> str:
        """Start a run nested below `parent` and return its id."""
        with self._reported(f"start the stage {name}"):
            return self._create_run(name, {**(tags or {}), PARENT_TAG: parent})

    def page(self, address: str) -> str:
        """Where the MLflow server at `address` shows the runs side by side, in the columns of
        `runs_view.py`.
        """
        with self._reported("offer a view of the runs"):
            mlflow_view.offer(self.client, self.experiment_id)
        return mlflow_view.page(address, self.experiment_id)

    def artifact_page(self, run_id: str, name: str, local: str) -> str:
        """Where a browser finds a run's artifact: on the server where runs are recorded, or on the one of a
        local store at `local`.
        """
        address = (
            without_password(self.uri).rstrip("/") if self.uri.startswith(("http://", "https://")) else local
        )
        return mlflow_view.artifact(address, self.experiment_id, run_id, name)

    def set_tags(self, run_id: str, tags: Mapping[str, str]) -> None:
        """Set tags of a run, over-long values cut."""
        with self._reported("set tags"):
            self.client.log_batch(
                run_id, tags=[RunTag(key, _cut(value, _TAG_CHARS)) for key, value in tags.items()]
            )

    def describe(self, run_id: str, markdown: str) -> None:
        """What MLflow's page of the run shows above all numbers."""
        self.set_tags(run_id, {NOTE_TAG: markdown})

    def log_metrics(self, run_id: str, metrics: Mapping[str, float], step: int | None = None) -> None:
        """Log one value each, all in one call."""
        now = _milliseconds()
        self._log_batches(
            run_id, (Metric(name, float(value), now, step or 0) for name, value in metrics.items())
        )

    def log_estimates(self, run_id: str, metrics: Metrics, curves: Collection[str] = ()) -> None:
        """Log metrics with their n and interval: `name`, `name_n`, `name_low`, `name_high`.

        There is no `name_n` of 1, and no interval whose ends are one. Args: curves: names under which curves
        stand: see `summary_name`.
        """
        values: dict[str, float] = {}
        for name, entry in metrics.items():
            label = summary_name(name, curves)
            keys = ["value", "low", "high"] if entry["low"] != entry["high"] else ["value"]
            for key in keys if entry["n"] == 1 else [*keys, "n"]:
                number = entry[key]
                if number is not None:
                    values[label if key == "value" else f"{label}_{key}"] = number
        self.log_metrics(run_id, values)

    def log_values(self, run_id: str, metrics: Metrics, curves: Collection[str] = ()) -> None:
        """Log metrics without n and interval, in the order in which a page should list them: the columns of
        `runs_view.py` first.

        Args: curves: names under which curves stand: see `summary_name`.
        """
        first = [name for name in mlflow_view.METRICS if name in metrics]
        names = dict.fromkeys([*first, *sorted(metrics)])
        values = {name: value for name in names if (value := metrics[name]["value"]) is not None}
        self.log_metrics(run_id, {summary_name(name, curves): value for name, value in values.items()})

    def log_points(self, run_ids: Sequence[str], points: Sequence[Point]) -> None:
        """Log points of curves, with the times at which they were measured, to each of the runs."""
        for run_id in run_ids:
            self._log_batches(
                run_id, (Metric(point.name, point.value, point.time, point.step) for point in points)
            )

    def log_series(self, run_id: str, name: str, values: Sequence[float], start: int = 0) -> None:
        """Log a curve, one value a step from step `start`, in batches of 1,000."""
        now = _milliseconds()
        self._log_batches(
            run_id, (Metric(name, float(value), now, start + step) for step, value in enumerate(values))
        )

    def log_artifact(self, run_id: str, path: Path, folder: str | None = None) -> None:
        """Store a file or a directory (its content) with the run, under `folder` if given. Raises DataError
        if it is missing.
        """
        if not path.exists():
            raise DataError(
                f"{path} cannot be stored in MLflow: it does not exist.",
                next_step="Run the stage that makes it again.",
            )
        with self._reported(f"store {path.name}"):
            if path.is_dir():
                self.client.log_artifacts(run_id, str(path), folder)
            else:
                self.client.log_artifact(run_id, str(path), folder)

    def log_dataset(
        self,
        run_id: str,
        name: str,
        dvc_hash: str,
        path: str,
        context: str = "training",
        *,
        version: str = "",
    ) -> None:
        """Link the run to data: the DVC hash is the data set's digest (what the UI shows) and, whole, its tag
        `dvc.hash`.

        Of a Parquet file at `path` the page shows columns and rows.

        Args: version: the version of all of `data/` that this part is from, for the tag `dvc.version`.
        """
        source, (schema, profile) = (
            json.dumps({"path": path, "dvc_hash": dvc_hash}),
            describe_parquet(Path(path)),
        )
        digest = dvc_hash[:_DIGEST_CHARS]
        dataset = Dataset(name, digest, "dvc", source, schema=schema or None, profile=profile or None)
        tags = [InputTag("mlflow.data.context", context), InputTag("dvc.hash", dvc_hash)]
        tags += [InputTag("dvc.version", version)] if version else []
        with self._reported(f"link the data {name}"):
            self.client.log_inputs(run_id, datasets=[DatasetInput(dataset, tags)])

    def finish(self, run_id: str, status: Literal["FINISHED", "FAILED", "KILLED"] = "FINISHED") -> None:
        """End a run."""
        with self._reported("end a run"):
            self.client.set_terminated(run_id, status)

    def running(self) -> dict[str, dict[str, str]]:
        """Id -> tags of the experiment's runs that have not ended, of at most a thousand."""
        with self._reported("look for running runs"):
            found = self.client.search_runs(
                [self.experiment_id], "attributes.status = 'RUNNING'", max_results=1000
            )
            return {run.info.run_id: dict(run.data.tags) for run in found}

    def kill(self, run_id: str, note: str) -> None:
        """End a run whose process is gone, and those of its stages that go on: MLflow says KILLED, and `note`
        above all numbers.
        """
        with self._reported("end a killed run"):
            running = f"tags.`{PARENT_TAG}` = '{run_id}' and attributes.status = 'RUNNING'"
            stages = self.client.search_runs([self.experiment_id], running, max_results=1000)
            for ended in (*(stage.info.run_id for stage in stages), run_id):
                self.client.set_terminated(ended, "KILLED")
        self.describe(run_id, note)

    def model_name(self, name: str) -> str:
        """What the model called `name` here is called in the registry."""
        return f"{self.experiment}-{name}"

    def register_model(
        self,
        run_id: str,
        name: str,
        model_directory: Path,
        tags: Mapping[str, str] | None = None,
        served: ServedModel | None = None,
    ) -> str:
        """Upload a directory as a model of the run and make it the next version in the registry; returns that
        version.

        The content's hash becomes the tag `content_sha256`, which `download` checks.

        Args: served: how `mlflow.pyfunc.load_model` loads it, and what its page says; None: MLflow stores the
        files alone.

        Raises:
            DataError: the directory is missing.
        """
        full = self.model_name(name)
        labels = {**(tags or {}), CONTENT_TAG: tree_hash(model_directory)}
        described, params = (served.description, served.params) if served else (None, None)
        with self._reported(f"register the model {full}"):
            plain = re.sub(r"[/:.%\"']", "-", full)
            logged = self.client.create_logged_model(
                self.experiment_id, plain, run_id, tags=labels, params=params, model_type=name
            )
            with _files_to_upload(model_directory, served, run_id, logged.model_id) as files:
                self.client.log_model_artifacts(logged.model_id, str(files))
            self.client.finalize_logged_model(logged.model_id, "READY")
            self._create_registered_model(full, served.title if served else "")
            location = logged.artifact_location
            made = self.client.create_model_version(
                full, location, run_id, tags=labels, model_id=logged.model_id, description=described
            )
            return str(made.version)

    def link_model(self, run_id: str, name: str, version: str) -> None:
        """List a version among the models of a run, on the run's page and on the model's."""
        with self._reported(f"link {self.model_name(name)} version {version}"):
            found = self.client.get_model_version(self.model_name(name), version)
            made = self.client.search_logged_models([self.experiment_id], f"source_run_id = '{found.run_id}'")
            outputs = self.client.get_run(run_id).outputs
            there = {output.model_id for output in outputs.model_outputs} if outputs else set()
            models = {model.model_id for model in made if model.artifact_location == found.source} - there
            if models:
                self.client.log_outputs(
                    run_id, [LoggedModelOutput(model, step=0) for model in sorted(models)]
                )

    def set_alias(self, name: str, alias: str, version: str) -> None:
        """Let `alias`, such as champion, point at a version."""
        with self._reported(f"move the alias {alias}"):
            self.client.set_registered_model_alias(self.model_name(name), alias, version)

    def alias(self, name: str, alias: str) -> str | None:
        """The version that the alias points at, None if there is no such alias or no such model."""
        with self._reported(f"read the alias {alias}"):
            try:
                return str(self.client.get_model_version_by_alias(self.model_name(name), alias).version)
            except MlflowException as error:
                if error.error_code in _NO_SUCH:
                    return None
                raise

    def require_champion(self) -> str:
        """The champion's version of this experiment's policy.

        Raises:
            TrackingError: there is none; says which other experiments have one.
        """
        if (version := self.alias("policy", "champion")) is not None:
            return version
        with self._reported("list models"):
            models = [
                model.name for model in self.client.search_registered_models() if "champion" in model.aliases
            ]
        others = [name.removesuffix("-policy") for name in models if name.endswith("-policy")]
        expected = (
            f"There is one of {', '.join(others)}: give its --config, or tracking.experiment={others[0]}."
            if others
            else ""
        )
        found = f"No version of {self.model_name('policy')} is the champion."
        raise TrackingError(found, expected, "Type `dreamgym retrain` until one is promoted.")

    def tag_version(self, name: str, version: str, tags: Mapping[str, str]) -> None:
        """Add tags to a version, or change them."""
        with self._reported(f"tag {self.model_name(name)} version {version}"):
            for key, value in tags.items():
                self.client.set_model_version_tag(self.model_name(name), version, key, value)

    def versions(self, name: str) -> dict[str, dict[str, str]]:
        """Version -> its tags, the oldest first; empty if there is no such model."""
        with self._reported(f"read the versions of {self.model_name(name)}"):
            found = self.client.search_model_versions(f"name = '{self.model_name(name)}'", max_results=1000)
        return {
            str(entry.version): dict(entry.tags)
            for entry in sorted(found, key=lambda entry: int(entry.version))
        }

    def version(self, name: str, version: str) -> dict[str, Any]:
        """What the registry knows of a version: `run_id` (the stage that made it), `tags`, `aliases` and
        `created` (ms).
        """
        with self._reported(f"read {self.model_name(name)} version {version}"):
            found = self.client.get_model_version(self.model_name(name), version)
        return {
            "run_id": found.run_id,
            "tags": dict(found.tags),
            "aliases": list(found.aliases),
            "created": found.creation_timestamp,
        }

    def download(self, name: str, version: str, destination: Path) -> Path:
        """Copy a version's files to the directory `destination` and return it; one that holds them already is
        left as it is.

        Raises:
            DataError: the files are not those that were registered, or `destination` holds other ones.
        """
        label, expected = (
            f"{self.model_name(name)} version {version}",
            self.version(name, version)["tags"].get(CONTENT_TAG, ""),
        )
        if destination.is_dir() and any(destination.iterdir()):
            _require_content(
                destination, expected, label, f"Remove it (rm -r {destination}) or name another directory."
            )
            return destination
        with self._reported(f"download {label}"):
            destination.parent.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryDirectory(dir=destination.parent) as folder:
                source = self.client.get_model_version_download_uri(self.model_name(name), version)
                files = Path(
                    mlflow.artifacts.download_artifacts(
                        artifact_uri=source, dst_path=folder, tracking_uri=self.uri
                    )
                )
                weights = weights_of(files)
                _require_content(
                    weights,
                    expected,
                    label,
                    "The artifact store is damaged: restore it or use another version.",
                )
                if weights == Path(folder):
                    shutil.copytree(weights, destination, dirs_exist_ok=True)
                else:
                    weights.replace(destination)
        return destination

    def _experiment_id(self, root: Path) -> str:
        found = self.client.get_experiment_by_name(self.experiment)
        if found is None:
            try:
                return str(self.client.create_experiment(self.experiment, artifact_location(self.uri, root)))
            except MlflowException as error:
                if error.error_code != ErrorCode.Name(RESOURCE_ALREADY_EXISTS):
                    raise
                found = self.client.get_experiment_by_name(self.experiment)
        if found is None or found.lifecycle_stage != "active":
            restore = f"mlflow experiments restore -x {found.experiment_id if found else 'ID'}"
            next_step = (
                f"Restore it (MLFLOW_TRACKING_URI={without_password(self.uri)} {restore}) or set "
                "another tracking.experiment."
            )
            raise TrackingError(f"The MLflow experiment {self.experiment} is deleted.", next_step=next_step)
        require_artifacts(self.uri, root, found.artifact_location, self.experiment)
        return str(found.experiment_id)

    def _create_run(self, name: str, tags: Mapping[str, str]) -> str:
        labels = {
            "mlflow.user": _user(),
            "mlflow.source.name": "dreamgym",
            "mlflow.source.type": "LOCAL",
            **tags,
        }
        cut = {key: _cut(value, _TAG_CHARS) for key, value in labels.items()}
        return str(self.client.create_run(self.experiment_id, tags=cut, run_name=name).info.run_id)

    def _log_params(self, run_id: str, params: Mapping[str, Any]) -> None:
        flat = [Param(_cut(key, _KEY_CHARS), _cut(value, _PARAM_CHARS)) for key, value in _flattened(params)]
        for start in range(0, len(flat), _PARAMS_A_BATCH):
            self.client.log_batch(run_id, params=flat[start : start + _PARAMS_A_BATCH])

    def _log_batches(self, run_id: str, metrics: Iterator[Metric]) -> None:
        named = (
            Metric(metric_name(metric.key), metric.value, metric.timestamp, metric.step) for metric in metrics
        )
        with self._reported("log metrics"):
            while batch := list(islice(named, _METRICS_A_BATCH)):
                self.client.log_batch(run_id, metrics=batch)

    def _create_registered_model(self, name: str, description: str) -> None:
        """Make the model unless it is there; one without a description gets it."""
        try:
            self.client.create_registered_model(name, description=description)
        except MlflowException as error:
            if error.error_code != ErrorCode.Name(RESOURCE_ALREADY_EXISTS):
                raise
            if description and not self.client.get_registered_model(name).description:
                self.client.update_registered_model(name, description)

    @contextmanager
    def _reported(self, action: str) -> Iterator[None]:
        try:
            yield
        except (MlflowException, SQLAlchemyError, OSError) as error:
            lines = str(error).strip().splitlines() or [type(error).__name__]
            found = f"MLflow at {without_password(self.uri)} could not {action}: {lines[0]}"
            kind = ServiceUnreachable if any(words in str(error) for words in _SILENT) else TrackingError
            raise kind(found, next_step=_HOSTS if "Host header" in found else _AGAIN) from error


@contextmanager
def _files_to_upload(
    directory: Path, served: ServedModel | None, run_id: str, model_id: str
) -> Iterator[Path]:
    """The directory itself, or one beside it with the files of an MLflow model, which is removed
    afterwards.
    """
    if served is None:
        yield directory
        return
    with tempfile.TemporaryDirectory(prefix=".registering-", dir=directory.parent) as folder:
        write_model(Path(folder) / "model", directory, served, run_id, model_id)
        yield Path(folder) / "model"


def _require_content(files: Path, expected: str, label: str, next_step: str) -> None:
    """Fail unless `files` are those that were registered; a version that carries no hash passes."""
    found = tree_hash(files)
    if expected and found != expected:
        raise DataError(
            f"{files} holds the hash {found[:12]}.", f"Expected {expected[:12]}, of {label}.", next_step
        )


def summary_name(name: str, curves: Collection[str]) -> str:
    """Where MLflow has a metric of `metrics.json`: `name`, or `name_final` where `name` is a curve.

    MLflow's tables show a curve's last point under its name. A summary there, such as the mean of the last
    five, would be a point of it.
    """
    return f"{name}{FINAL}" if name in curves else name


def _flattened(values: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, str]]:
    for key, value in values.items():
        if isinstance(value, Mapping):
            yield from _flattened(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value if isinstance(value, str) else json.dumps(value, default=str)


def _cut(text: Any, limit: int) -> str:
    text = str(text)
    return text if len(text) <= limit else text[: limit - 1] + "…"


def _milliseconds() -> int:
    return int(time.time() * 1000)


def _user() -> str:
    try:
        return getpass.getuser()
    except (OSError, KeyError):
        return "unknown"
