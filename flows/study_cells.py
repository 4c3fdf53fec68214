"""The cells of a study on disk: one small JSON file each, which can be committed, so that a study goes on on another machine."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path

from components.config import Config, dump_config
from components.errors import DataError
from components.evaluation.study import Cell
from components.tracking.atomic import write_json
from components.tracking.hashes import text_hash, tree_hash
from components.trajectories.snapshots import data_hash


def cell_key(config: Config, name: str, root: Path) -> str:
    """Names what a cell depends on: its method, its config but for where it is recorded and on how many threads, the data's version,
    the content of the models that it starts from."""
    values = config.model_copy(update={"tracking": type(config.tracking)(), "promotion": type(config.promotion)(), "threads": 1})
    models = [tree_hash(root / path) for path in (config.backbone.path, config.experience_model.path) if path]
    return text_hash("\n".join([name, dump_config(values), str(data_hash(root)), *models]))[:16]


def write_cell(directory: Path, cell: Cell) -> Path:
    """Write a finished cell; its file is named after its method and seed."""
    path = directory / f"{cell.method}-{cell.seed}.json"
    write_json(path, asdict(cell))
    return path


def read_cell(directory: Path, method: str, seed: int, key: str) -> Cell | None:
    """The cell if it has been finished; None if not.

    Raises:
        DataError: its file cannot be read, or it was made with another config, other data or another definition of the method.
    """
    path = directory / f"{method}-{seed}.json"
    if not path.is_file():
        return None
    cure = f"Name another directory (--cells), or have it made again: rm {path}"
    try:
        cell = Cell(**json.loads(path.read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError) as error:
        raise DataError(f"{path} is no cell of a study: {error}", "Expected a file that `dreamgym study` wrote.", cure) from None
    if cell.key != key:
        raise DataError(f"{path} was made with another config or other data (key {cell.key}).", f"Expected the key {key}.", cure)
    return cell
