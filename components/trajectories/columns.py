"""Cast the columns of another program's table to those of a record, without changing a value.

pandas, Spark and Arrow write the same values in many types: text as a dictionary (categorical) or as views, a
step as a float, a reward as an integer. Such columns are cast. A cast that would change a value is refused,
and the message has the column, the row and the value. Columns that a record does not have, such as a pandas
index or time stamps, are not read.
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

_ADVICE = "The file is unchanged. Correct it with the program that wrote it, for example in pandas:"
_TYPE_WORDS = {
    pa.string(): "text",
    pa.int64(): "an integer",
    pa.float64(): "a number",
    pa.bool_(): "true or false",
}
OPTIONAL = ("thought", "outcome_known")
"""Columns that a file need not have: files of earlier versions and of other programs have no thoughts, and an
outcome is known unless a file says otherwise."""
_MAX_EXACT_INTEGER = 2**53
"""Integers up to this one are exact as floats."""


@dataclass
class Columns:
    """A table with exactly the columns of a record.

    `casts`: column -> its type in the file. `unread`: columns of the file that are not read.
    """

    table: pa.Table
    casts: dict[str, str] = field(default_factory=dict)
    unread: list[str] = field(default_factory=list)


class ColumnProblem(ValueError):
    """A column cannot be read without changing a value.

    Args:
        found, expected: texts for the Data Docs.
        fix: a line of pandas that corrects the column.
    """

    def __init__(self, column: str, found: str, expected: str, fix: str) -> None:
        self.column = column
        self.found = found
        self.expected = expected
        self.fix = fix
        super().__init__(f"{column} {found}, expected {expected}")


def examine(
    table: pa.Table, schema: pa.Schema, defaults: Mapping[str, Any], first_row: int = 0
) -> tuple[Columns, list[ColumnProblem]]:
    """(columns, problems) of a table. The table of `columns` is empty if there is a problem.

    Args:
        defaults: values of columns that may have no value at all.
        first_row: number of the table's first row in its file, for messages.
    """
    columns = Columns(table.select([]))
    problems = []
    columns.unread = [name for name in table.column_names if name not in schema.names]
    arrays = []
    for field_ in schema:
        if field_.name in OPTIONAL and field_.name not in table.column_names:
            arrays.append(pa.chunked_array([pa.array([defaults[field_.name]] * len(table), field_.type)]))
            continue
        try:
            column = _single_column(table, field_.name)
            arrays.append(_cast(field_.name, column, field_.type, defaults, first_row))
            if column.type not in (field_.type, pa.large_string()):
                columns.casts[field_.name] = str(column.type)
        except ColumnProblem as problem:
            problems.append(problem)
    if not problems:
        columns.table = pa.Table.from_arrays(arrays, schema=schema)
    return columns, problems


def refused(path: Path, problems: list[ColumnProblem]) -> DataError:
    """The error for columns that cannot be read."""
    fixes = "; ".join(dict.fromkeys(problem.fix for problem in problems))
    found = "; ".join(f"{problem.column} {problem.found}" for problem in problems)
    expected = "; ".join(f"{problem.column}: {problem.expected}" for problem in problems)
    return DataError(
        f"{path} cannot be read without changing it: {found}.",
        f"Expected {expected}.",
        f"{_ADVICE} {fixes}",
    )


def bytes_of(batch: pa.RecordBatch) -> int:
    """Size of a batch if each row held its own text. Dictionaries and views share texts among rows."""
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


def _single_column(table: pa.Table, name: str) -> pa.ChunkedArray:
    indices = [index for index, column_name in enumerate(table.column_names) if column_name == name]
    if len(indices) == 1:
        return table.column(indices[0])
    if indices:
        fix = "frame.loc[:, ~frame.columns.duplicated()]"
        raise ColumnProblem(name, f"occurs {len(indices)} times", "one column of that name", fix)
    nearest = difflib.get_close_matches(name, table.column_names, n=1, cutoff=0.6)
    fix = f"frame.rename(columns={{{nearest[0]!r}: {name!r}}})" if nearest else f"frame[{name!r}] = ..."
    hint = f" (there is {nearest[0]})" if nearest else ""
    raise ColumnProblem(name, f"is missing{hint}", "a column of that name", fix)


def _cast(
    name: str,
    column: pa.ChunkedArray,
    target_type: pa.DataType,
    defaults: Mapping[str, Any],
    first_row: int,
) -> pa.ChunkedArray:
    if column.null_count == len(column) and name in defaults:
        return pa.chunked_array([pa.array([defaults[name]] * len(column), target_type)])
    if pa.types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    source_type = column.type
    if source_type == target_type:
        return column
    if pa.types.is_null(source_type):
        return column.cast(target_type)
    type_tests = _TEXT_TESTS if target_type == pa.string() else _NUMBER_TESTS
    if not any(test(source_type) for test in type_tests):
        raise ColumnProblem(name, f"is {source_type}", _TYPE_WORDS[target_type], _type_fix(name, target_type))
    if target_type == pa.string():
        return _cast_to_text(name, column, first_row)
    return _cast_to_number(name, column, target_type, first_row)


_TEXT_TESTS = (
    pa.types.is_large_string,
    pa.types.is_string_view,
    pa.types.is_binary,
    pa.types.is_large_binary,
    pa.types.is_string,
)
_NUMBER_TESTS = (pa.types.is_integer, pa.types.is_floating, pa.types.is_decimal, pa.types.is_boolean)


def _cast_to_text(name: str, column: pa.ChunkedArray, first_row: int) -> pa.ChunkedArray:
    try:
        return column.cast(pa.string())
    except pa.ArrowInvalid:
        values = enumerate(column.to_pylist(), first_row)
        row, value = next((row, value) for row, value in values if not _is_utf8(value))
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


def _cast_to_number(
    name: str, column: pa.ChunkedArray, target_type: pa.DataType, first_row: int
) -> pa.ChunkedArray:
    """Cast integers, floats, decimals and booleans to each other without loss. NaN is a missing value."""
    values = column.to_pylist()
    converted: list[Any] = []
    for row, value in enumerate(values, first_row):
        is_missing = value is None or value != value
        if not is_missing and not _is_exact(value, target_type):
            found = f"is {value} in row {row:,} ({column.type})"
            fix = f"frame[{name!r}].iloc[{row}] is the value"
            raise ColumnProblem(name, found, _TYPE_WORDS[target_type], fix)
        converted.append(None if is_missing else _PYTHON_TYPES[target_type](value))
    return pa.chunked_array([pa.array(converted, target_type)])


_PYTHON_TYPES: dict[pa.DataType, type] = {pa.int64(): int, pa.float64(): float, pa.bool_(): bool}


def _is_exact(value: Any, target_type: pa.DataType) -> bool:
    """Whether the cast of a value equals it."""
    if target_type == pa.bool_():
        return value in (0, 1)
    if target_type == pa.int64():
        return not isinstance(value, bool) and abs(value) < 2**63 and value == int(value)
    return abs(value) <= _MAX_EXACT_INTEGER if isinstance(value, int) else float(value) == value


def _type_fix(name: str, target_type: pa.DataType) -> str:
    pandas_types = {pa.string(): "str", pa.int64(): "int64", pa.float64(): "float64", pa.bool_(): "bool"}
    return f"frame[{name!r}] = frame[{name!r}].astype({pandas_types[target_type]!r})"
