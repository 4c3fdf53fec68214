"""Register, link, tag and download versions of models in MLflow's registry.

Models have short names here, such as `policy`. In the registry the experiment's name is their prefix.
"""

from __future__ import annotations

import re
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import mlflow.artifacts
from mlflow.entities import LoggedModelOutput
from mlflow.exceptions import MlflowException
from mlflow.protos.databricks_pb2 import INVALID_PARAMETER_VALUE, RESOURCE_DOES_NOT_EXIST, ErrorCode

from components.errors import DataError, TrackingError
from components.tracking.mlflow_adapter.connection import ALREADY_EXISTS, Connection
from components.tracking.pyfunc.pyfunc_files import ServedModel, weights_of, write_model
from components.tracking.stage_store.hashes import tree_hash

CONTENT_TAG = "content_sha256"
_ALIAS_MISSING_CODES = {ErrorCode.Name(RESOURCE_DOES_NOT_EXIST), ErrorCode.Name(INVALID_PARAMETER_VALUE)}
_MAX_VERSIONS = 1000


class ModelRegistry(Connection):
    """Versions of the experiment's models, and the aliases that point at them."""

    def model_name(self, name: str) -> str:
        """The registry's name of the model with the short name `name`."""
        return f"{self.experiment}-{name}"

    def register_model(
        self,
        run_id: str,
        name: str,
        model_directory: Path,
        tags: Mapping[str, str] | None = None,
        served: ServedModel | None = None,
    ) -> str:
        """Upload a directory as a model of the run and register it as the next version.

        The content's hash becomes the tag `content_sha256`, which `download` checks.

        Args:
            served: how `mlflow.pyfunc.load_model` loads it, and the text of its page. With None MLflow stores
                the files alone.

        Returns:
            The new version.

        Raises:
            DataError: the directory is missing.
        """
        full_name = self.model_name(name)
        version_tags = {**(tags or {}), CONTENT_TAG: tree_hash(model_directory)}
        with self.reporting_errors(f"register the model {full_name}"):
            logged_model = self.client.create_logged_model(
                self.experiment_id,
                re.sub(r"[/:.%\"']", "-", full_name),
                run_id,
                tags=version_tags,
                params=served.params if served else None,
                model_type=name,
            )
            with _files_to_upload(model_directory, served, run_id, logged_model.model_id) as files:
                self.client.log_model_artifacts(logged_model.model_id, str(files))
            self.client.finalize_logged_model(logged_model.model_id, "READY")
            self._create_registered_model(full_name, served.title if served else "")
            model_version = self.client.create_model_version(
                full_name,
                logged_model.artifact_location,
                run_id,
                tags=version_tags,
                model_id=logged_model.model_id,
                description=served.description if served else None,
            )
            return str(model_version.version)

    def link_model(self, run_id: str, name: str, version: str) -> None:
        """List a version among the models of a run, on the run's page and on the model's page."""
        with self.reporting_errors(f"link {self.model_name(name)} version {version}"):
            model_version = self.client.get_model_version(self.model_name(name), version)
            logged_models = self.client.search_logged_models(
                [self.experiment_id], f"source_run_id = '{model_version.run_id}'"
            )
            outputs = self.client.get_run(run_id).outputs
            listed_ids = {output.model_id for output in outputs.model_outputs} if outputs else set()
            model_ids = {
                model.model_id for model in logged_models if model.artifact_location == model_version.source
            }
            if new_ids := model_ids - listed_ids:
                self.client.log_outputs(
                    run_id, [LoggedModelOutput(model_id, step=0) for model_id in sorted(new_ids)]
                )

    def set_alias(self, name: str, alias: str, version: str) -> None:
        """Make `alias`, such as champion, point at a version."""
        with self.reporting_errors(f"move the alias {alias}"):
            self.client.set_registered_model_alias(self.model_name(name), alias, version)

    def alias(self, name: str, alias: str) -> str | None:
        """The version that the alias points at, or None if there is no such alias or no such model."""
        with self.reporting_errors(f"read the alias {alias}"):
            try:
                return str(self.client.get_model_version_by_alias(self.model_name(name), alias).version)
            except MlflowException as error:
                if error.error_code in _ALIAS_MISSING_CODES:
                    return None
                raise

    def require_champion(self) -> str:
        """The champion's version of this experiment's policy.

        Raises:
            TrackingError: there is no champion; the message names other experiments that have one.
        """
        if (version := self.alias("policy", "champion")) is not None:
            return version
        with self.reporting_errors("list models"):
            names = [
                model.name for model in self.client.search_registered_models() if "champion" in model.aliases
            ]
        experiments = [name.removesuffix("-policy") for name in names if name.endswith("-policy")]
        hint = ""
        if experiments:
            hint = (
                f"There is one of {', '.join(experiments)}: give its --config, or "
                f"tracking.experiment={experiments[0]}."
            )
        raise TrackingError(
            f"No version of {self.model_name('policy')} is the champion.",
            hint,
            "Type `dreamgym retrain` until one is promoted.",
        )

    def tag_version(self, name: str, version: str, tags: Mapping[str, str]) -> None:
        """Add tags to a version, or change them."""
        with self.reporting_errors(f"tag {self.model_name(name)} version {version}"):
            for key, value in tags.items():
                self.client.set_model_version_tag(self.model_name(name), version, key, value)

    def versions(self, name: str) -> dict[str, dict[str, str]]:
        """Tags of each version, the oldest version first; empty if there is no such model."""
        with self.reporting_errors(f"read the versions of {self.model_name(name)}"):
            entries = self.client.search_model_versions(
                f"name = '{self.model_name(name)}'", max_results=_MAX_VERSIONS
            )
        oldest_first = sorted(entries, key=lambda entry: int(entry.version))
        return {str(entry.version): dict(entry.tags) for entry in oldest_first}

    def version(self, name: str, version: str) -> dict[str, Any]:
        """The registry's record of a version.

        Returns:
            `run_id` (the stage that made it), `tags`, `aliases` and `created` (milliseconds since 1970).
        """
        with self.reporting_errors(f"read {self.model_name(name)} version {version}"):
            entry = self.client.get_model_version(self.model_name(name), version)
        return {
            "run_id": entry.run_id,
            "tags": dict(entry.tags),
            "aliases": list(entry.aliases),
            "created": entry.creation_timestamp,
        }

    def download(self, name: str, version: str, destination: Path) -> Path:
        """Copy a version's files to the directory `destination` and return it.

        A `destination` that already holds these files is left as it is.

        Raises:
            DataError: the files are not those that were registered, or `destination` holds other files.
        """
        label = f"{self.model_name(name)} version {version}"
        expected_hash = self.version(name, version)["tags"].get(CONTENT_TAG, "")
        if destination.is_dir() and any(destination.iterdir()):
            advice = f"Remove it (rm -r {destination}) or name another directory."
            _require_content(destination, expected_hash, label, advice)
            return destination
        with self.reporting_errors(f"download {label}"):
            destination.parent.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryDirectory(dir=destination.parent) as folder:
                source = self.client.get_model_version_download_uri(self.model_name(name), version)
                weights = weights_of(
                    Path(
                        mlflow.artifacts.download_artifacts(
                            artifact_uri=source, dst_path=folder, tracking_uri=self.uri
                        )
                    )
                )
                advice = "The artifact store is damaged: restore it or use another version."
                _require_content(weights, expected_hash, label, advice)
                if weights == Path(folder):
                    shutil.copytree(weights, destination, dirs_exist_ok=True)
                else:
                    weights.replace(destination)
        return destination

    def _create_registered_model(self, name: str, description: str) -> None:
        """Create the model unless it exists. An existing model without a description gets this one."""
        try:
            self.client.create_registered_model(name, description=description)
        except MlflowException as error:
            if error.error_code != ALREADY_EXISTS:
                raise
            if description and not self.client.get_registered_model(name).description:
                self.client.update_registered_model(name, description)


@contextmanager
def _files_to_upload(
    directory: Path, served: ServedModel | None, run_id: str, model_id: str
) -> Iterator[Path]:
    """The directory itself, or a temporary sibling with the files of an MLflow model."""
    if served is None:
        yield directory
        return
    with tempfile.TemporaryDirectory(prefix=".registering-", dir=directory.parent) as folder:
        write_model(Path(folder) / "model", directory, served, run_id, model_id)
        yield Path(folder) / "model"


def _require_content(files: Path, expected_hash: str, label: str, next_step: str) -> None:
    """Raise DataError unless `files` are those that were registered. An empty `expected_hash` passes."""
    actual_hash = tree_hash(files)
    if expected_hash and actual_hash != expected_hash:
        raise DataError(
            f"{files} holds the hash {actual_hash[:12]}.",
            f"Expected {expected_hash[:12]}, of {label}.",
            next_step,
        )
