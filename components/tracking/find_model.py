"""Find models for commands outside a run, and the offline transitions that a model was trained on."""

from __future__ import annotations

import json
from pathlib import Path

from components.config import Config
from components.errors import DataError
from components.experience.dataset import episodes_of_families, select_episodes
from components.experience.prompted_model import CARD
from components.files import read_text
from components.records import Transition
from components.tracking.stage_store.stage_result import RECORD
from components.trajectories.store import DataLayout, iter_episodes, read_tasks


def find_model(root: Path, named: Path | None, environment: str) -> Path:
    """Directory of the named experience model, or of the newest finished one of the environment.

    A clone that has not finished one yet has the model that comes with the data, if there is one.

    Raises:
        DataError: the named directory has no weights, or no stage is finished and the data has no model.
    """
    if named is None:
        try:
            return _newest_output(root, environment, "experience_model", "model", "experience model")
        except DataError:
            shipped = DataLayout.of(root, environment).shipped_model
            if has_weights(shipped):
                return shipped
            raise
    if not (has_weights(named) or (named / CARD).is_file()):
        reason = "no *.safetensors in it" if named.is_dir() else "there is no such directory"
        problem = f"{named} holds no experience model: {reason}."
        hint = f"Type --model {named / 'model'}." if has_weights(named / "model") else "Leave --model out."
        raise DataError(
            problem, "Expected one such as .dreamgym/stages/experience_model-0123456789ab/model.", hint
        )
    return named


def find_clone(root: Path, named: Path | None, environment: str) -> Path:
    """Directory of the named policy, or of the newest finished cloned policy of the environment.

    Raises:
        DataError: the named directory has no weights, or no stage is finished.
    """
    if named is None:
        return _newest_output(root, environment, "clone", "policy", "clone")
    if not has_weights(named):
        raise DataError(
            f"{named} holds no policy: no *.safetensors in it.",
            "Expected one such as .dreamgym/stages/clone-*/policy.",
        )
    return named


def _newest_output(root: Path, environment: str, stage: str, output: str, label: str) -> Path:
    """The output of the newest finished `stage` of `environment`.

    A record of an earlier version names no environment, and counts for every environment.
    """
    store = root / ".dreamgym" / "stages"
    directories = [path for path in store.glob(f"{stage}-*") if not path.suffix and (path / RECORD).is_file()]
    with_output = [path for path in directories if has_weights(path / output)]
    matching = [path for path in with_output if _environment_of(path / RECORD) in ("", environment)]
    if not matching:
        others = sorted({_environment_of(path / RECORD) for path in with_output})
        hint = f" (there is one of {', '.join(others)})" if others else ""
        next_step = (
            f"Type `dreamgym retrain` first, with the same --config, or name a directory with --{output}."
        )
        raise DataError(
            f"There is no finished {label} of {environment} under {store}{hint}.", next_step=next_step
        )
    return max(matching, key=lambda path: (path / RECORD).stat().st_mtime) / output


def _environment_of(record: Path) -> str:
    """Name of a stage's environment; "" if its record does not name it."""
    try:
        return str(json.loads(read_text(record))["details"]["environment"])
    except (OSError, ValueError, KeyError, TypeError):
        return ""


def offline_transitions(config: Config, data: DataLayout) -> list[Transition]:
    """The offline transitions that a model of this config was trained on and retrieves.

    Raises:
        DataError: they are missing.
    """
    episodes = iter_episodes(read_tasks(data.tasks("train")), data.trajectories("train"))
    in_families = list(episodes_of_families(episodes, config.data.families))
    return [
        step
        for episode in select_episodes(in_families, config.experience_model, config.seed)
        for step in episode.steps
    ]


def has_weights(directory: Path) -> bool:
    """True if there are safetensors in the directory."""
    return any(directory.glob("*.safetensors"))
