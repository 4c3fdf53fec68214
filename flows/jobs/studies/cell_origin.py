"""The origin of a cell of a study or an ablation: config, data version and models.

A cell on disk is reused only if its origin is the requested one. The whole config is kept, not its hash. So a
config key that was added later counts with its default, and a message can name what differs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from components.config import Config
from components.config.migration import STAGES, migrate, removed_options
from components.errors import DataError
from components.tracking.run_differences import changed_fields
from components.tracking.stage_store.hashes import tree_hash
from components.trajectories.dvc.snapshots import part_hash
from components.trajectories.store import DataLayout
from flows.jobs.pretraining.card import CARD

Origin = dict[str, Any]
UNUSED_KEYS = ("threads", "cluster", "tracking", "promotion", "stage_timeout_minutes")
"""Config keys that change no number of a cell; `threads` only changes the last digit."""
NOT_READ = "not read"
"""In place of a model's hash where the cell does not read the model."""
MAX_LISTED_DIFFERENCES = 5


def origin_of(config: Config, root: Path, unused: Sequence[str] = (), *, reads_dream: bool = True) -> Origin:
    """Return the config, the version of the data, and the hashes of models that the config names by path.

    A model's card is not part of it: a backbone that was pretrained again, with equal weights, has another,
    in the data too. The replay log is not part of the version: every retraining extends it, and no cell reads
    it. Paths are not part of the origin, because they differ between machines.

    Args:
        unused: further sections of the config, such as `study` or `rl.real`, that change no such number.
        reads_dream: False for a cell without an experience model, to which that model's backbone is nothing.
    """
    layout = DataLayout.of(root, config.environment.name)
    values = config.model_dump(mode="json")
    for key in (*UNUSED_KEYS, *unused):
        section, _, rest = key.partition(".")
        if rest:
            values[section].pop(rest)
        else:
            values.pop(section)
    values["environment"] = config.environment.decisive(where=True)
    values["retrieval"].pop("server")
    paths = {section: values[section].pop("path") for section in ("backbone", "experience_model")}
    models = {
        f"{section}.path": tree_hash(root / path, leave_out=[CARD]) for section, path in paths.items() if path
    }
    if not reads_dream and paths["experience_model"]:
        models["experience_model.path"] = NOT_READ
    without = (layout.replay.name, f"{layout.backbone.name}/{CARD}")
    return {"config": values, "data": part_hash(root, layout.root.name, without), "models": models}


def require_origin(file: Path, recorded: Mapping[str, Any], expected: Origin, next_step: str) -> None:
    """Raise DataError if the origin recorded in `file` is not the expected one, naming what differs."""
    try:
        config = Config.model_validate(migrate(recorded["config"], allow_removed=True)).model_dump(
            mode="json"
        )
        config = _with_keys_of(config, expected["config"])
        not_read = {name: value for name, value in expected["models"].items() if value == NOT_READ}
        recorded_values = {**config, "data": recorded["data"], **recorded["models"], **not_read}
        recorded_values |= _removed_options(recorded["config"], expected)
    except (ValidationError, KeyError, TypeError) as error:
        raise DataError(
            f"{file} has a config that is no longer valid: {str(error).splitlines()[0]}.", next_step=next_step
        ) from None
    expected_values = {**expected["config"], "data": expected["data"], **expected["models"]}
    changes = changed_fields(recorded_values, expected_values)
    if changes:
        listed = [f"{change.name} ({change.first}, not {change.second})" for change in changes]
        more = len(listed) - MAX_LISTED_DIFFERENCES
        text = ", ".join(listed[:MAX_LISTED_DIFFERENCES]) + (f" and {more} more" if more > 0 else "")
        raise DataError(f"{file} was made with something else: {text}.", next_step=next_step)


def _removed_options(config: Mapping[str, Any], expected: Origin) -> dict[str, Any]:
    """Return options of an earlier version whose value is not today's constant, of the expected sections."""
    stages = expected["config"].get("rl", {})
    return {
        key: value
        for key, value in removed_options(config).items()
        if STAGES.get(key.partition(".")[0], "dream") in stages
    }


def _with_keys_of(values: Mapping[str, Any], other: Mapping[str, Any]) -> dict[str, Any]:
    """Return `values` without the keys that `other` lacks, at any level."""
    result: dict[str, Any] = {}
    for name, value in values.items():
        if name in other:
            both_are_sections = isinstance(value, dict) and isinstance(other[name], dict)
            result[name] = _with_keys_of(value, other[name]) if both_are_sections else value
    return result
