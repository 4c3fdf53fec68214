"""What a command looks at outside a run: the experience model that was named, else the newest one, and what such a model remembers."""

from __future__ import annotations

from pathlib import Path

from components.config import Config
from components.errors import DataError
from components.experience.dataset import chosen, of_families
from components.records import Transition
from components.tracking.stages import RECORD
from components.trajectories.store import DataLayout, read_tasks, read_transitions, trajectories


def find_model(root: Path, named: Path | None) -> Path:
    """The directory of the experience model: the one named, else that of the newest finished stage.

    Raises:
        DataError: the named one holds no weights, or no stage is finished.
    """
    if named is None:
        stages = (root / ".dreamgym" / "stages").glob("experience_model-*")
        finished = [stage for stage in stages if not stage.suffix and (stage / RECORD).is_file() and _has_weights(stage / "model")]
        if not finished:
            next_step = "Type `dreamgym retrain` first, or name a model's directory with --model."
            raise DataError(f"There is no finished experience model under {root / '.dreamgym' / 'stages'}.", next_step=next_step)
        return max(finished, key=lambda stage: (stage / RECORD).stat().st_mtime) / "model"
    if not _has_weights(named):
        found = f"{named} holds no experience model: {'no *.safetensors in it' if named.is_dir() else 'there is no such directory'}."
        hint = f"Type --model {named / 'model'}." if _has_weights(named / "model") else "Leave --model out to take the newest one."
        raise DataError(found, "Expected one such as .dreamgym/stages/experience_model-0123456789ab/model.", hint)
    return named


def find_clone(root: Path, named: Path | None) -> Path:
    """The directory of a policy: the one named, else that of the newest finished clone.

    Raises:
        DataError: the named one holds no weights, or no clone is finished.
    """
    if named is not None and not _has_weights(named):
        raise DataError(f"{named} holds no policy: no *.safetensors in it.", "Expected one such as .dreamgym/stages/clone-*/policy.")
    stages = [stage for stage in (root / ".dreamgym" / "stages").glob("clone-*") if _has_weights(stage / "policy") and not stage.suffix]
    if named is None and not stages:
        found = f"There is no finished clone under {root / '.dreamgym' / 'stages'}."
        raise DataError(found, next_step="Type `dreamgym retrain` first, or name a policy's directory with --policy.")
    return named or max(stages, key=lambda stage: (stage / RECORD).stat().st_mtime) / "policy"


def lessons(config: Config, data: DataLayout) -> list[Transition]:
    """The offline transitions that a model of this config has learnt from and retrieves. Raises DataError if they are missing."""
    episodes = trajectories(read_tasks(data.tasks("train")), read_transitions(data.trajectories("train")))
    taught = of_families(episodes, config.data.families)
    return [step for episode in chosen(taught, config.experience_model, config.seed) for step in episode.steps]


def _has_weights(directory: Path) -> bool:
    return any(directory.glob("*.safetensors"))
