"""Judgements as a Parquet table: one row a predicted transition, the real one and the dreamed one side by
side.

The table is what the metrics are computed from, so whoever doubts a number can count again; several seeds'
tables are pooled by reading them one after the other.
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
from components.trajectories.store import read_frame, write_frame

_PREFIX = "real_"
"""Columns of the real transition carry it, since both sides have a reward and a reasoning."""
_REAL = [field.name for field in dataclasses.fields(Transition)]
_OWN = [field.name for field in dataclasses.fields(Judgement) if field.name != "transition"]


def write_judgements(path: Path, judgements: Sequence[Judgement]) -> None:
    """Write one row a judgement, in order, replacing `path` in one step. Raises DataError if it cannot be
    written.
    """
    rows = [_row(judgement) for judgement in judgements]
    write_frame(path, pd.DataFrame(rows, columns=[*(_PREFIX + name for name in _REAL), *_OWN]))


def read_judgements(path: Path) -> list[Judgement]:
    """The judgements of `path`. Raises DataError if the file is missing, damaged, empty or has other
    columns.
    """
    frame = read_frame(path)
    expected = {*(_PREFIX + name for name in _REAL), *_OWN}
    if set(frame.columns) != expected:
        odd = sorted(set(frame.columns) ^ expected)
        raise DataError(
            f"{path} has other columns: {', '.join(odd)}.",
            "Expected a table of judgements.",
            "Measure again.",
        )
    rows: list[dict[str, Any]] = frame.to_dict("records")
    return [
        Judgement(
            Transition(**{name: row[_PREFIX + name] for name in _REAL}), **{name: row[name] for name in _OWN}
        )
        for row in rows
    ]


def _row(judgement: Judgement) -> dict[str, Any]:
    real = {_PREFIX + name: getattr(judgement.transition, name) for name in _REAL}
    return real | {name: getattr(judgement, name) for name in _OWN}
