"""Judgements as a Parquet table: one row per predicted transition, with the real and the predicted side.

All fidelity metrics can be recomputed from this table. To pool several seeds, read their tables one after the
other.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from components.errors import DataError
from components.experience.step_judgements import Judgement
from components.records import Transition
from components.trajectories.parquet_file import read_frame, write_frame

_PREFIX = "real_"
"""Prefix of the real transition's columns, because both sides have a reward and a reasoning."""
_NO_COLUMNS = ("thought", "outcome_known")
"""Of the real transition: the experience model does not see them."""
_REAL_FIELDS = [field.name for field in dataclasses.fields(Transition) if field.name not in _NO_COLUMNS]
_JUDGEMENT_FIELDS = [field.name for field in dataclasses.fields(Judgement) if field.name != "transition"]
_LATER_FIELDS = {
    *("confidence", "same_words", "common_words", "words"),
    *("answered", "used_exact", "used_reward"),
}
"""Columns that older tables lack."""


def write_judgements(path: Path, judgements: Sequence[Judgement]) -> None:
    """Write one row per judgement, in order, and replace `path` atomically.

    Raises:
        DataError: the file cannot be written.
    """
    rows = [_to_row(judgement) for judgement in judgements]
    columns = [*(_PREFIX + name for name in _REAL_FIELDS), *_JUDGEMENT_FIELDS]
    write_frame(path, pd.DataFrame(rows, columns=columns))


def read_judgements(path: Path) -> list[Judgement]:
    """Return the judgements of `path`, in order.

    Raises:
        DataError: the file is missing, damaged, empty or has different columns.
    """
    frame = read_frame(path)
    expected_columns = {*(_PREFIX + name for name in _REAL_FIELDS), *_JUDGEMENT_FIELDS}
    if differing_columns := sorted((set(frame.columns) ^ expected_columns) - _LATER_FIELDS):
        raise DataError(
            f"{path} has different columns: {', '.join(differing_columns)}.",
            "Expected a table of judgements.",
            "Measure the fidelity again.",
        )
    rows: list[dict[str, Any]] = frame.to_dict("records")
    return [
        Judgement(
            Transition(**{name: row[_PREFIX + name] for name in _REAL_FIELDS}),
            **{name: row[name] for name in _JUDGEMENT_FIELDS if name in row},
        )
        for row in rows
    ]


def _to_row(judgement: Judgement) -> dict[str, Any]:
    transition = vars(judgement.transition)
    own_values = vars(judgement)
    return {_PREFIX + name: transition[name] for name in _REAL_FIELDS} | {
        name: own_values[name] for name in _JUDGEMENT_FIELDS
    }
