"""The cells of an ablation on disk: the measurements of one variant with one seed.

    <variant>-<seed>.json       its origin, the run that made it, its dreamed episodes replayed in the real
    engine <variant>-<seed>.parquet    its judgements without their texts, which no metric needs

The texts stay in the stage that the cell was made from. A cell of some thousand judgements takes tens of
kilobytes, so it can be committed to git.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from components.errors import DataError
from components.evaluation.metrics.judgements import read_judgements, write_judgements
from components.evaluation.metrics.open_loop import OpenLoopEpisode
from components.experience.step_judgements import Judgement
from components.files import parse_json, read_text, write_json
from components.tracking.stage_store.hashes import file_hash
from flows.jobs.studies.cell_origin import Origin, require_origin


@dataclass(frozen=True)
class Cell:
    """Measurements of one variant with one seed; `origin`: see `flows.jobs.studies.cell_origin`."""

    origin: Origin
    run_id: str
    commit: str
    judgements: Sequence[Judgement]
    rehearsals: Sequence[OpenLoopEpisode]


def write_cell(directory: Path, name: str, cell: Cell) -> None:
    """Write a cell; the JSON file last, because the cell exists if that file does."""
    record, table = _cell_paths(directory, name)
    table.parent.mkdir(parents=True, exist_ok=True)
    write_judgements(table, [_without_texts(judgement) for judgement in cell.judgements])
    values = {
        "origin": cell.origin,
        "run_id": cell.run_id,
        "commit": cell.commit,
        "judgements": file_hash(table),
    }
    write_json(record, values | {"rehearsals": [asdict(rehearsal) for rehearsal in cell.rehearsals]})


def read_cell(directory: Path, name: str, origin: Origin) -> Cell | None:
    """Return the cell if it exists; None if not.

    Raises:
        DataError: it cannot be read, its table is missing or of another cell, or it was made with another
            config, other data or another model.
    """
    record, table = _cell_paths(directory, name)
    if not record.is_file():
        return None
    next_step = f"Name another directory (--cells), or delete the file to run the cell again: rm {record}"
    try:
        values = parse_json(read_text(record))
        rehearsals = [OpenLoopEpisode(**row | {"same": tuple(row["same"])}) for row in values["rehearsals"]]
        table_hash = values["judgements"]
        cell = Cell(values["origin"], values["run_id"], values["commit"], [], rehearsals)
    except (OSError, ValueError, TypeError, KeyError) as error:
        raise DataError(
            f"{record} is no cell of an ablation: {error}",
            "Expected a file that `dreamgym ablate` wrote.",
            next_step,
        ) from None
    require_origin(record, cell.origin, origin, next_step)
    if not table.is_file() or file_hash(table) != table_hash:
        problem = f"{table} is missing or not the table of {record.name}."
        raise DataError(problem, f"Expected the hash {table_hash}.", next_step)
    return replace(cell, judgements=read_judgements(table))


def _cell_paths(directory: Path, name: str) -> tuple[Path, Path]:
    return directory / f"{name}.json", directory / f"{name}.parquet"


def _without_texts(judgement: Judgement) -> Judgement:
    bare = replace(judgement.transition, state="", action="", next_state="", reasoning="")
    return replace(judgement, transition=bare, predicted="", reasoning="")
