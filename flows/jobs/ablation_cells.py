"""The cells of an ablation on disk: what one variant with one seed was measured to be, small enough to be
committed.

    <variant>-<seed>.json        what it depends on, the run that made it, its dreamed episodes against the
    real engine <variant>-<seed>.parquet     its judgements without their texts: what the metrics count, and
    no more

Texts stay in the stage that the cell was made from; a cell of some thousand judgements has tens of kilobytes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from components.errors import DataError
from components.evaluation.metrics.judgements import read_judgements, write_judgements
from components.evaluation.metrics.open_loop import Rehearsal
from components.experience.step_judgements import Judgement
from components.files import parse_json, read_text, write_json
from components.tracking.stage_store.hashes import file_hash
from flows.jobs.cell_origin import Origin, require_origin


@dataclass(frozen=True)
class Cell:
    """What one variant with one seed was measured to be; `origin`: see `flows.jobs.cell_origin`."""

    origin: Origin
    run_id: str
    commit: str
    judgements: Sequence[Judgement]
    rehearsals: Sequence[Rehearsal]


def write_cell(directory: Path, name: str, cell: Cell) -> None:
    """Write a cell; the JSON file last, since it alone says that there is one."""
    record, table = _paths(directory, name)
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
    """The cell if there is one; None if not.

    Raises:
        DataError: it cannot be read, its table is missing or another one, or it was made with another config,
            other data or another model.
    """
    record, table = _paths(directory, name)
    if not record.is_file():
        return None
    cure = f"Name another directory (--cells), or have it made again: rm {record}"
    try:
        values = parse_json(read_text(record))
        rehearsals = [Rehearsal(**row | {"same": tuple(row["same"])}) for row in values["rehearsals"]]
        wanted, made = (
            values["judgements"],
            Cell(values["origin"], values["run_id"], values["commit"], [], rehearsals),
        )
    except (OSError, ValueError, TypeError, KeyError) as error:
        raise DataError(
            f"{record} is no cell of an ablation: {error}",
            "Expected a file that `dreamgym ablate` wrote.",
            cure,
        ) from None
    require_origin(record, made.origin, origin, cure)
    if not table.is_file() or file_hash(table) != wanted:
        raise DataError(
            f"{table} is missing or not the table of {record.name}.", f"Expected the hash {wanted}.", cure
        )
    return replace(made, judgements=read_judgements(table))


def _paths(directory: Path, name: str) -> tuple[Path, Path]:
    return directory / f"{name}.json", directory / f"{name}.parquet"


def _without_texts(judgement: Judgement) -> Judgement:
    bare = replace(judgement.transition, state="", action="", next_state="", reasoning="")
    return replace(judgement, transition=bare, predicted="", reasoning="")
