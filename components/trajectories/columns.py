"""Columns of a table that somebody else wrote, cast to those of a record where no value changes.

pandas, Spark and Arrow write the same values in many types: text as a dictionary (categorical) or as views, a
step as a float, a reward as an integer. Such columns are cast. A cast that would change a value is refused
with the column, the row and the value. Columns that a record does not have, such as a pandas index or time
stamps, are not read.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from components.errors import DataError

KEEP = "The file stays as it is. Correct it with the program that wrote it, for example in pandas:"
_WORDS = {
    pa.string(): "text",
    pa.int64(): "an integer",
    pa.float64(): "a number",
    pa.bool_(): "true or false",
}
_EXACT = 2**53
"""Integers up to here are floats without loss."""


@dataclass
class Columns:
    """A table with exactly the columns of a record, and what was done: casts (column -> type in the file),
    columns that are not read.
    """

    table: pa.Table
    casts: dict[str, str] = field(default_factory=dict)
    unread: list[str] = field(default_factory=list)


class ColumnProblem(ValueError):
    """A column cannot be read without changing a value. Args: found, expected: as the Data Docs show it;
    cure: a line of pandas.
    """

    def __init__(self, column: str, found: str, expected: str, cure: str) -> None:
        self.column, self.found, self.expected, self.cure = column, found, expected, cure
        super().__init__(f"{column} {found}, expected {expected}")


def as_record(path: Path, table: pa.Table, schema: pa.Schema, defaults: Mapping[str, Any]) -> Columns:
    """The columns of `schema`, each cast without loss. Args: defaults: values of columns that may be empty
    throughout.

    Raises:
        DataError: a column is missing, stands twice, or has a value that no cast keeps.
    """
    columns, problems = examine(table, schema, defaults)
    if problems:
        raise refused(path, problems)
    return columns


def examine(
    table: pa.Table, schema: pa.Schema, defaults: Mapping[str, Any]
) -> tuple[Columns, list[ColumnProblem]]:
    """What can be cast, and what cannot; the table is whole only where there is no problem."""
    columns, problems = Columns(table.select([])), []
    columns.unread = [name for name in table.column_names if name not in schema.names]
    arrays = []
    for wanted in schema:
        try:
            column = _only(table, wanted.name)
            arrays.append(_cast(wanted.name, column, wanted.type, defaults))
            if column.type not in (wanted.type, pa.large_string()):
                columns.casts[wanted.name] = str(column.type)
        except ColumnProblem as problem:
            problems.append(problem)
    if not problems:
        columns.table = pa.Table.from_arrays(arrays, schema=schema)
    return columns, problems


def refused(path: Path, problems: list[ColumnProblem]) -> DataError:
    """What to tell the user of columns that cannot be read."""
    cures = "; ".join(dict.fromkeys(problem.cure for problem in problems))
    found = (
        f"{path} cannot be read without changing it: "
        f"{'; '.join(f'{one.column} {one.found}' for one in problems)}."
    )
    return DataError(
        found,
        f"Expected {'; '.join(f'{one.column}: {one.expected}' for one in problems)}.",
        f"{KEEP} {cures}",
    )


def bytes_of(batch: pa.RecordBatch) -> int:
    """The size of a batch once each row holds its own text: dictionaries and views share texts among rows."""
    return batch.nbytes + sum(_shared_bytes(column) for column in batch.columns)


def _shared_bytes(column: pa.Array) -> int:
    if pa.types.is_dictionary(column.type):
        values = column.dictionary
        if not (pa.types.is_string(values.type) or pa.types.is_large_string(values.type)):
            return 0
        lengths = pc.binary_length(values).cast(pa.int64())
        return pc.sum(pc.take(lengths, column.indices)).as_py() or 0
    if pa.types.is_string_view(column.type) and len(column):
        views = np.frombuffer(column.buffers()[1], np.int32)[
            column.offset * 4 : (column.offset + len(column)) * 4 : 4
        ]
        return int(views.astype(np.int64).sum())
    return 0


def _only(table: pa.Table, name: str) -> pa.ChunkedArray:
    places = [place for place, found in enumerate(table.column_names) if found == name]
    if len(places) == 1:
        return table.column(places[0])
    if places:
        cure = "frame.loc[:, ~frame.columns.duplicated()]"
        raise ColumnProblem(name, f"stands there {len(places)} times", "one column of that name", cure)
    near = difflib.get_close_matches(name, table.column_names, n=1, cutoff=0.6)
    cure = f"frame.rename(columns={{{near[0]!r}: {name!r}}})" if near else f"frame[{name!r}] = ..."
    raise ColumnProblem(
        name, f"is missing{f' (there is {near[0]})' if near else ''}", "a column of that name", cure
    )


def _cast(
    name: str, column: pa.ChunkedArray, wanted: pa.DataType, defaults: Mapping[str, Any]
) -> pa.ChunkedArray:
    if column.null_count == len(column) and name in defaults:
        return pa.chunked_array([pa.array([defaults[name]] * len(column), wanted)])
    if pa.types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    kind = column.type
    if kind == wanted:
        return column
    if pa.types.is_null(kind):
        return column.cast(wanted)
    castable = _TEXT if wanted == pa.string() else _NUMBERS
    if not any(test(kind) for test in castable):
        raise ColumnProblem(name, f"is {kind}", _WORDS[wanted], _cure(name, wanted))
    if wanted == pa.string():
        return _text(name, column)
    return _number(name, column, wanted)


_TEXT = (
    pa.types.is_large_string,
    pa.types.is_string_view,
    pa.types.is_binary,
    pa.types.is_large_binary,
    pa.types.is_string,
)
_NUMBERS = (pa.types.is_integer, pa.types.is_floating, pa.types.is_decimal, pa.types.is_boolean)


def _text(name: str, column: pa.ChunkedArray) -> pa.ChunkedArray:
    try:
        return column.cast(pa.string())
    except pa.ArrowInvalid:
        row, value = next((row, value) for row, value in enumerate(column.to_pylist()) if not _is_utf8(value))
        raise ColumnProblem(
            name,
            f"is {value[:40]!r} in row {row:,}",
            "text in UTF-8",
            f"frame[{name!r}].str.decode(ENCODING)",
        ) from None


def _is_utf8(value: Any) -> bool:
    try:
        return value is None or isinstance(value, str) or bool(value.decode()) or True
    except UnicodeDecodeError:
        return False


def _number(name: str, column: pa.ChunkedArray, wanted: pa.DataType) -> pa.ChunkedArray:
    """Integers, floats, decimals and booleans in each other's place, value by value the same; NaN is a
    missing value.
    """
    values = column.to_pylist()
    converted: list[Any] = []
    for row, value in enumerate(values):
        missing = value is None or value != value
        if not missing and not _keeps(value, wanted):
            cure = f"frame[{name!r}].iloc[{row}] is the value"
            raise ColumnProblem(name, f"is {value} in row {row:,} ({column.type})", _WORDS[wanted], cure)
        converted.append(None if missing else _PYTHON[wanted](value))
    return pa.chunked_array([pa.array(converted, wanted)])


_PYTHON: dict[pa.DataType, type] = {pa.int64(): int, pa.float64(): float, pa.bool_(): bool}


def _keeps(value: Any, wanted: pa.DataType) -> bool:
    """Whether the cast of a value equals it."""
    if wanted == pa.bool_():
        return value in (0, 1)
    if wanted == pa.int64():
        return not isinstance(value, bool) and abs(value) < 2**63 and value == int(value)
    return abs(value) <= _EXACT if isinstance(value, int) else float(value) == value


def _cure(name: str, wanted: pa.DataType) -> str:
    kinds = {pa.string(): "str", pa.int64(): "int64", pa.float64(): "float64", pa.bool_(): "bool"}
    return f"frame[{name!r}] = frame[{name!r}].astype({kinds[wanted]!r})"
