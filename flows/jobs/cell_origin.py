"""What a cell of a study or an ablation depends on; a cell on disk is read back only where that is what is
asked for.

The whole config is kept, not its hash: a key that was added since counts with its default, and what differs
can be named.
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

Origin = dict[str, Any]
IDLE = ("threads", "tracking", "promotion", "stage_timeout_minutes")
"""What of a config changes no number of a cell (threads: none but the last digit)."""
MOST_NAMED = 5


def origin_of(config: Config, root: Path, idle: Sequence[str] = ()) -> Origin:
    """Config, the data's version and the content of the models named by a path, which may lie elsewhere on
    another machine.

    The replay log, which every retraining extends and no cell reads, is no part of that version.

    Args: idle: further sections, such as `study` or `rl.real`, that change no number of such a cell.
    """
    layout = DataLayout.of(root, config.environment.name)
    values = config.model_dump(mode="json")
    for key in (*IDLE, *idle):
        section, _, rest = key.partition(".")
        if rest:
            values[section].pop(rest)
        else:
            values.pop(section)
    values["environment"] = config.environment.decisive(where=True)
    values["retrieval"].pop("server")
    named = {section: values[section].pop("path") for section in ("backbone", "experience_model")}
    models = {f"{section}.path": tree_hash(root / path) for section, path in named.items() if path}
    return {"config": values, "data": part_hash(root, layout.root.name, layout.replay.name), "models": models}


def require_origin(file: Path, found: Mapping[str, Any], wanted: Origin, cure: str) -> None:
    """Raises DataError naming what differs between the origin that `file` tells and the one asked for."""
    try:
        config = Config.model_validate(migrate(found["config"], allow_removed=True)).model_dump(mode="json")
        removed = _removed(found["config"], wanted)
        sides = [{**_kept(config, wanted["config"]), "data": found["data"], **found["models"], **removed}]
    except (ValidationError, KeyError, TypeError) as error:
        raise DataError(
            f"{file} tells a config that there is no more: {str(error).splitlines()[0]}.", next_step=cure
        ) from None
    sides.append({**wanted["config"], "data": wanted["data"], **wanted["models"]})
    other = [f"{change.name} ({change.first}, not {change.second})" for change in changed_fields(*sides)]
    if other:
        more = f" and {len(other) - MOST_NAMED} more" if len(other) > MOST_NAMED else ""
        raise DataError(
            f"{file} was made with something else: {', '.join(other[:MOST_NAMED])}{more}.", next_step=cure
        )


def _removed(config: Mapping[str, Any], wanted: Origin) -> dict[str, Any]:
    """Options of an earlier version with another value than today's constant, of the sections asked for."""
    stages = wanted["config"].get("rl", {})
    return {
        key: value
        for key, value in removed_options(config).items()
        if STAGES.get(key.partition(".")[0], "dream") in stages
    }


def _kept(values: Mapping[str, Any], wanted: Mapping[str, Any]) -> dict[str, Any]:
    """`values` without what `wanted` leaves out, at any level."""
    both = {name: (value, wanted[name]) for name, value in values.items() if name in wanted}
    return {
        name: _kept(*pair) if all(isinstance(one, dict) for one in pair) else pair[0]
        for name, pair in both.items()
    }
