"""Read the rows of a Parquet table one batch at a time, as values of a record's columns.

The memory of a pass does not grow with the table. A message is about the whole table: after the first error
no row is yielded, but the rest is checked, so that the message has the first such row of each column, and the
number of missing values.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa

from components.errors import DataError
from components.trajectories.columns import ColumnProblem, examine, refused
from components.trajectories.parquet_file import empty_table_error, iter_batches, schema_of


def iter_rows(
    path: Path, schema: pa.Schema, defaults: Mapping[str, Any], may_be_empty: bool = False
) -> Iterator[tuple[Any, ...]]:
    """Rows with values in the order of the schema's columns, complete and of the columns' types.

    Args:
        defaults: values of columns that may have no value at all.

    Raises:
        DataError: the file is missing or damaged, has other columns or missing values, or is empty although
            `may_be_empty` is False. Rows before the error were yielded.
    """
    checks = _TableChecks(path, schema, defaults)
    for batch in iter_batches(path):
        columns = checks.cast(pa.Table.from_batches([batch]))
        if columns is not None:
            yield from zip(*(_values(column) for column in columns), strict=True)
    if not checks.row_count:
        if not may_be_empty:
            raise empty_table_error(path)
        checks.cast(schema_of(path).empty_table())
    checks.raise_errors()


def _values(column: pa.ChunkedArray) -> list[Any]:
    """The values of a column as Python objects. Equal texts are one object."""
    if column.type != pa.string():
        return column.to_pylist()
    encoded = column.combine_chunks().dictionary_encode()
    texts = encoded.dictionary.to_pylist()
    return [texts[index] for index in encoded.indices.to_pylist()]


class _TableChecks:
    """Casts the parts of a table in their order, and collects what is wrong with them.

    Attributes:
        row_count: rows of the parts so far.
    """

    def __init__(self, path: Path, schema: pa.Schema, defaults: Mapping[str, Any]) -> None:
        self.row_count = 0
        self._path = path
        self._schema = schema
        self._defaults = dict(defaults)
        self._problems: dict[str, ColumnProblem] = {}
        self._null_counts: Counter[str] = Counter()

    def cast(self, part: pa.Table) -> list[pa.ChunkedArray] | None:
        """The columns of the schema; None if something is wrong with this part or an earlier one."""
        self._drop_defaults(part)
        cast, problems = examine(part, self._schema, self._defaults, self.row_count)
        for problem in problems:
            self._problems.setdefault(problem.column, problem)
        for name, column in zip(cast.table.column_names, cast.table.columns, strict=True):
            self._null_counts[name] += column.null_count
        self.row_count += part.num_rows
        return None if self._problems or any(self._null_counts.values()) else cast.table.columns

    def raise_errors(self) -> None:
        """Raise DataError if something is wrong with the parts so far."""
        if self._problems:
            raise refused(self._path, [self._problems[name] for name in self._order(self._problems)])
        names = self._order(+self._null_counts)
        if names:
            raise DataError(
                f"{self._path} has missing values in "
                f"{', '.join(f'{name} ({self._null_counts[name]})' for name in names)}.",
                "Expected a value in every row.",
                "Fill them, or type `dreamgym validate`, which sets episodes with missing values aside.",
            )

    def _drop_defaults(self, part: pa.Table) -> None:
        """A default stands for a column without any value: in one that gets its first value here, the values
        of the earlier rows are missing.
        """
        for name, column in zip(part.column_names, part.columns, strict=True):
            if name in self._defaults and column.null_count < len(column):
                del self._defaults[name]
                self._null_counts[name] += self.row_count

    def _order(self, names: Mapping[str, Any]) -> list[str]:
        return [name for name in self._schema.names if name in names]
