"""What a command looks at outside a run: an experience model or a clone by directory or the newest one, and
what a model remembers.
"""

from __future__ import annotations

import json
from pathlib import Path

from components.config import Config
from components.errors import DataError
from components.experience.dataset import chosen, of_families
from components.files import read_text
from components.records import Transition
from components.tracking.stage_store.stage_store import RECORD
from components.trajectories.store import DataLayout, read_tasks, read_transitions, trajectories


def find_model(root: Path, named: Path | None, environment: str) -> Path:
    """The directory of the experience model: the one named, else that of the newest finished stage of that
    environment.

    Raises:
        DataError: the named one holds no weights, or no stage is finished.
    """
    if named is None:
        return _newest(root, environment, "experience_model", "model", "experience model")
    if not has_weights(named):
        found = (
            f"{named} holds no experience model: "
            f"{'no *.safetensors in it' if named.is_dir() else 'there is no such directory'}."
        )
        hint = f"Type --model {named / 'model'}." if has_weights(named / "model") else "Leave --model out."
        raise DataError(
            found, "Expected one such as .dreamgym/stages/experience_model-0123456789ab/model.", hint
        )
    return named


def find_clone(root: Path, named: Path | None, environment: str) -> Path:
    """The directory of a policy: the one named, else that of the newest finished clone of that environment.

    Raises:
        DataError: the named one holds no weights, or no clone is finished.
    """
    if named is None:
        return _newest(root, environment, "clone", "policy", "clone")
    if not has_weights(named):
        raise DataError(
            f"{named} holds no policy: no *.safetensors in it.",
            "Expected one such as .dreamgym/stages/clone-*/policy.",
        )
    return named


def _newest(root: Path, environment: str, stage: str, output: str, what: str) -> Path:
    """What the newest finished `stage` of `environment` made (one that says none, of an earlier version,
    counts as of any).
    """
    place = root / ".dreamgym" / "stages"
    stages = [found for found in place.glob(f"{stage}-*") if not found.suffix and (found / RECORD).is_file()]
    finished = [found for found in stages if has_weights(found / output)]
    own = [found for found in finished if _environment(found / RECORD) in ("", environment)]
    if not own:
        others = sorted({_environment(found / RECORD) for found in finished})
        known = f" (there is one of {', '.join(others)})" if others else ""
        next_step = (
            f"Type `dreamgym retrain` first, with the same --config, or name a directory with --{output}."
        )
        raise DataError(
            f"There is no finished {what} of {environment} under {place}{known}.", next_step=next_step
        )
    return max(own, key=lambda found: (found / RECORD).stat().st_mtime) / output


def _environment(record: Path) -> str:
    """The environment that a stage was of; "" where its record does not say."""
    try:
        return str(json.loads(read_text(record))["details"]["environment"])
    except (OSError, ValueError, KeyError, TypeError):
        return ""


def lessons(config: Config, data: DataLayout) -> list[Transition]:
    """The offline transitions that a model of this config has learnt from and retrieves. Raises DataError if
    they are missing.
    """
    episodes = trajectories(read_tasks(data.tasks("train")), read_transitions(data.trajectories("train")))
    taught = of_families(episodes, config.data.families)
    return [
        step for episode in chosen(taught, config.experience_model, config.seed) for step in episode.steps
    ]


def has_weights(directory: Path) -> bool:
    """True if there are safetensors in the directory."""
    return any(directory.glob("*.safetensors"))
