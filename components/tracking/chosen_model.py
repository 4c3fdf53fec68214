"""Choose the experience model that a command opens, and say why.

It is the named one, else the champion's, else the newest finished one, else the one that comes with the data.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from components.config import Config, source_of
from components.errors import DataError, DreamGymError, TrackingError
from components.files import read_text
from components.tracking.find_model import find_model, has_weights
from components.tracking.manifest import Manifest
from components.tracking.mlflow_adapter.mlflow_uri import has_store, resolve_uri
from components.tracking.mlflow_adapter.tracker import Tracker
from components.tracking.stage_store.hashes import text_hash
from components.tracking.stage_store.stage_result import RECORD, StageResult
from components.tracking.stage_store.stage_store import StageStore
from components.trajectories.store import DataLayout


@dataclass(frozen=True)
class ChosenModel:
    """The directory of an experience model, and why it was chosen, in words that follow the path."""

    directory: Path
    why: str

    def shown(self, root: Path) -> str:
        """The path (relative to `root` if it is below it) and the reason."""
        is_below_root = self.directory.is_relative_to(root)
        return f"{self.directory.relative_to(root) if is_below_root else self.directory} ({self.why})"


def choose_model(config: Config, root: Path, named: Path | None) -> ChosenModel:
    """The experience model to open.

    Args:
        named: directory that the user named; with None the registry is asked for the champion.

    Raises:
        DataError: the named directory has no model, or no directory is named and no model is finished.
    """
    environment = config.environment.name
    if named is not None:
        return ChosenModel(find_model(root, named, environment), "named with --model")
    try:
        return champion_model(config, root) or _newest_model(root, environment, "no policy is the champion")
    except TrackingError as error:
        return _newest_model(
            root, environment, f"the registry does not say who is the champion: {error.found}"
        )
    except DataError as error:
        return _newest_model(root, environment, error.found)


def _newest_model(root: Path, environment: str, reason: str) -> ChosenModel:
    directory = find_model(root, None, environment)
    is_shipped = directory == DataLayout.of(root, environment).shipped_model
    choice = "the one that comes with the data" if is_shipped else "the newest finished one"
    return ChosenModel(directory, f"{choice}; {reason.rstrip('.')}")


def champion_model(config: Config, root: Path) -> ChosenModel | None:
    """The experience model of the run that made the champion policy; None if there is no champion.

    Raises:
        TrackingError: the registry does not answer.
        DataError: the model is neither among the stages of this clone nor in the registry.
    """
    if not has_store(resolve_uri(config.tracking, root)):
        return None
    tracker = Tracker(config.tracking, root)
    version = tracker.alias("policy", "champion")
    if version is None:
        return None
    run_id = tracker.version("policy", version)["tags"].get("dreamgym.run_id", "")
    why = f"the champion's: version {version} of {tracker.model_name('policy')}, run {run_id}"
    key = _experience_model_key(root, run_id)
    stage = root / ".dreamgym" / "stages" / f"experience_model-{key[:12]}" / "model"
    has_stage = key and has_weights(stage)
    directory = stage if has_stage else _download_model(tracker, root, run_id, key)
    return ChosenModel(directory, why)


def _experience_model_key(root: Path, run_id: str) -> str:
    """Key of the stage that made the experience model of a run; empty if the run is not in this clone."""
    try:
        stages = Manifest.load(root / "runs" / run_id).stages
    except DreamGymError:
        return ""
    return next((stage.key for stage in stages if stage.name == "experience_model"), "")


def _download_model(tracker: Tracker, root: Path, run_id: str, key: str) -> Path:
    """Download the experience model of a stage, or else of a run, from the registry."""
    version = tracker.alias("experience-model", f"stage-{key[:12]}") if key else None
    versions_of_run = [
        name
        for name, tags in tracker.versions("experience-model").items()
        if tags.get("dreamgym.run_id") == run_id
    ]
    version = version or (versions_of_run[-1] if versions_of_run else None)
    if version is None:
        raise DataError(
            f"The champion's experience model (run {run_id}) is neither among the stages of this "
            "clone nor in the registry."
        )
    store_id = text_hash(f"{tracker.uri} {tracker.model_name('experience-model')}")[:12]
    destination = root / ".dreamgym" / "champion" / f"{store_id}-{version}"
    return tracker.download("experience-model", version, destination)


MODEL_OF_CONFIG = "config"
"""Value of `dreamgym fidelity --model` that selects the model of the config."""


def choose_stage(config: Config, root: Path, named: str) -> tuple[StageResult | None, str]:
    """(finished stage of the experience model to examine, reason); None stands for the model of the config.

    The champion's model is the default. If the command line sets `experience_model.*`, the model of the
    config is meant.

    Raises:
        DataError: the named directory is not the output of a finished stage.
    """
    if named == MODEL_OF_CONFIG:
        return None, "the one of this config (--model config)"
    if named:
        directory = find_model(root, Path(named), config.environment.name)
        expected = (
            "Expected one such as .dreamgym/stages/experience_model-0123456789ab/model, or "
            f"{MODEL_OF_CONFIG}."
        )
        return _stage_of(directory, expected), named
    overrides = [
        override for override in source_of(config).overrides if override.startswith("experience_model.")
    ]
    if overrides:
        return None, f"the one of this config, since {overrides[0]} was set"
    try:
        champion = champion_model(config, root)
        if champion is None:
            return None, "the one of this config; no policy is the champion"
        return _stage_of(champion.directory, "Expected its stage."), champion.shown(root)
    except (TrackingError, DataError) as error:
        return None, f"the one of this config; {error.found.rstrip('.')}"


def _stage_of(model: Path, expected: str) -> StageResult:
    """The finished stage with the output `model`.

    Raises:
        DataError: there is no such stage, or it is damaged.
    """
    directory = model.resolve().parent
    try:
        record = json.loads(read_text(directory / RECORD))
        stage, damage = StageStore(directory.parent).look_up(record["name"], record["key"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise DataError(f"{model} is not the output of a finished stage: {error}.", expected) from None
    if stage is None or stage.name != "experience_model":
        raise DataError(
            f"{model} is not the output of a finished experience model{f': {damage}' if damage else ''}.",
            expected,
        )
    return stage
