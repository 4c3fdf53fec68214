"""The cells of a study on disk: one small JSON file each.

The files can be committed to git, so that a study continues on another machine.
"""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path

from components.errors import DataError
from components.evaluation.study.cells import Cell
from components.files import parse_json, read_text, write_json
from flows.jobs.cell_origin import Origin, require_origin


def cell_file(directory: Path, method: str, seed: int) -> Path:
    """Return the file of a finished cell, named after its method and seed."""
    return directory / f"{method}-{seed}.json"


def write_cell(directory: Path, cell: Cell) -> Path:
    """Write a finished cell and return its file."""
    path = cell_file(directory, cell.method, cell.seed)
    write_json(path, asdict(cell))
    return path


def read_cell(directory: Path, method: str, seed: int, origin: Origin) -> Cell | None:
    """Return the cell if it is finished; None if not.

    Raises:
        DataError: its file cannot be read, or it was made with another config, other data or another
            definition of the method.
    """
    path = cell_file(directory, method, seed)
    if not path.is_file():
        return None
    next_step = f"Name another directory (--cells), or delete the file to run the cell again: rm {path}"
    try:
        cell = Cell(**parse_json(read_text(path)))
    except (OSError, ValueError, TypeError) as error:
        raise DataError(
            f"{path} is no cell of a study: {error}",
            "Expected a file that `dreamgym study` wrote.",
            next_step,
        ) from None
    if type(cell.seed) is not int or (cell.method, cell.seed) != (method, seed):
        problem = f"{path} is the cell of the method {cell.method} with the seed {json.dumps(cell.seed)}."
        raise DataError(
            problem, f"Expected the method {method} and the seed {seed}, as the file is named.", next_step
        )
    require_origin(path, cell.origin, origin, next_step)
    return cell
