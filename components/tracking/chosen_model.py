"""Which experience model a command opens: the one that was named, else the champion's, else the newest
finished one; and why.
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
from components.tracking.stage_store.stage_store import RECORD, StageResult, StageStore


@dataclass(frozen=True)
class ChosenModel:
    """The directory of an experience model, and why it was chosen, in words that follow its path."""

    directory: Path
    why: str

    def shown(self, root: Path) -> str:
        """The path, relative to `root` where it lies in it, and the reason."""
        inside = self.directory.is_relative_to(root)
        return f"{self.directory.relative_to(root) if inside else self.directory} ({self.why})"


def choose_model(config: Config, root: Path, named: Path | None) -> ChosenModel:
    """The experience model to open; the registry is asked for the champion only where none is `named`.

    Raises:
        DataError: the named directory holds no model, or none is named and none is finished.
    """
    environment = config.environment.name
    if named is not None:
        return ChosenModel(find_model(root, named, environment), "named with --model")
    try:
        return champion_model(config, root) or _newest(root, environment, "no policy is the champion")
    except TrackingError as error:
        return _newest(root, environment, f"the registry does not say who is the champion: {error.found}")
    except DataError as error:
        return _newest(root, environment, error.found)


def _newest(root: Path, environment: str, reason: str) -> ChosenModel:
    return ChosenModel(find_model(root, None, environment), f"the newest finished one; {reason.rstrip('.')}")


def champion_model(config: Config, root: Path) -> ChosenModel | None:
    """The experience model of the run that made the champion policy; None if there is no champion.

    Raises:
        TrackingError: the registry does not answer.
        DataError: the model is neither among the stages here nor in the registry.
    """
    if not has_store(resolve_uri(config.tracking, root)):
        return None
    tracker = Tracker(config.tracking, root)
    version = tracker.alias("policy", "champion")
    if version is None:
        return None
    run_id = tracker.version("policy", version)["tags"].get("dreamgym.run_id", "")
    who = f"the champion's: version {version} of {tracker.model_name('policy')}, run {run_id}"
    key = _experience_model_key(root, run_id)
    stage = root / ".dreamgym" / "stages" / f"experience_model-{key[:12]}" / "model"
    return ChosenModel(stage if key and has_weights(stage) else _registered(tracker, root, run_id, key), who)


def _experience_model_key(root: Path, run_id: str) -> str:
    """The key of the stage that made the experience model of a run; empty if the run was made elsewhere."""
    try:
        stages = Manifest.load(root / "runs" / run_id).stages
    except DreamGymError:
        return ""
    return next((stage.key for stage in stages if stage.name == "experience_model"), "")


def _registered(tracker: Tracker, root: Path, run_id: str, key: str) -> Path:
    """The experience model as the registry has it: of that stage, or of that run."""
    version = tracker.alias("experience-model", f"stage-{key[:12]}") if key else None
    of_run = [
        name
        for name, tags in tracker.versions("experience-model").items()
        if tags.get("dreamgym.run_id") == run_id
    ]
    version = version or (of_run[-1] if of_run else None)
    if version is None:
        raise DataError(
            f"The champion's experience model (run {run_id}) is neither among the stages here nor in the "
            "registry."
        )
    place = text_hash(f"{tracker.uri} {tracker.model_name('experience-model')}")[:12]
    return tracker.download(
        "experience-model", version, root / ".dreamgym" / "champion" / f"{place}-{version}"
    )


OWN = "config"
"""What `dreamgym fidelity --model` is told to examine the model of the config."""


def choose_stage(config: Config, root: Path, named: str) -> tuple[StageResult | None, str]:
    """The finished stage of the experience model to examine, and which and why; None: the one of the config.

    The champion's is the default, unless the command line sets `experience_model.*`, which says that another
    one is meant.

    Raises:
        DataError: the named directory is not the output of a finished stage.
    """
    if named == OWN:
        return None, "the one of this config (--model config)"
    if named:
        directory = find_model(root, Path(named), config.environment.name)
        return _stage_of(
            directory, f"Expected one such as .dreamgym/stages/experience_model-0123456789ab/model, or {OWN}."
        ), named
    set_here = [
        override for override in source_of(config).overrides if override.startswith("experience_model.")
    ]
    if set_here:
        return None, f"the one of this config, since {set_here[0]} was set"
    try:
        champion = champion_model(config, root)
        if champion is None:
            return None, "the one of this config; no policy is the champion"
        return _stage_of(champion.directory, "Expected its stage."), champion.shown(root)
    except (TrackingError, DataError) as error:
        return None, f"the one of this config; {error.found.rstrip('.')}"


def _stage_of(model: Path, expected: str) -> StageResult:
    """The finished stage whose output `model` is. Raises DataError if there is none, or it is damaged."""
    directory = model.resolve().parent
    try:
        record = json.loads(read_text(directory / RECORD))
        found, damage = StageStore(directory.parent).look_up(record["name"], record["key"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise DataError(f"{model} is not the output of a finished stage: {error}.", expected) from None
    if found is None or found.name != "experience_model":
        raise DataError(
            f"{model} is not the output of a finished experience model{f': {damage}' if damage else ''}.",
            expected,
        )
    return found
