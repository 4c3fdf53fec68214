"""Tables: their cells and columns, as rows of JSON and printed without cutting any cell."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from rich import table as rich_table
from rich.cells import cell_len
from rich.console import Console, RenderableType
from rich.text import Text

PROSE_WIDTH = 24
"""Smallest width of a `prose` column, in characters."""

_FRAME = 3
"""Characters that the frame of a table adds to each column; the row ends with one more."""


@dataclass(frozen=True)
class Cell:
    """One value of a table.

    Args:
        value: for JSON.
        text: for the printed table; None: `value` as text.
        style: of rich, such as a colour.
    """

    value: Any
    text: str | None = None
    style: str = ""

    def __str__(self) -> str:
        return ("" if self.value is None else str(self.value)) if self.text is None else self.text


@dataclass(frozen=True)
class Column:
    """A column of a table.

    Args:
        name: the heading.
        key: in JSON; empty: the heading.
        right: whether the text is aligned to the right.
        prose: whether the text may wrap.
    """

    name: str
    key: str = ""
    right: bool = False
    prose: bool = False


@dataclass(frozen=True)
class Table:
    """A table.

    Args:
        rows: as many cells as columns in each; a plain value stands for `Cell(value)`.
        frame: False: print neither frame nor headings.
    """

    title: str
    columns: Sequence[Column]
    rows: Sequence[Sequence[Any]] = field(default_factory=list)
    frame: bool = True

    @property
    def cells(self) -> list[list[Cell]]:
        """The rows, with every value as a `Cell`."""
        return [[value if isinstance(value, Cell) else Cell(value) for value in row] for row in self.rows]

    def to_json(self) -> list[dict[str, Any]]:
        """Return one object for each row."""
        keys = [column.key or column.name for column in self.columns]
        return [dict(zip(keys, (cell.value for cell in row), strict=True)) for row in self.cells]


def print_table(console: Console, table: Table) -> None:
    """Print the table with every cell complete: on wide lines, with wrapped prose columns, or as records."""
    if table.title:
        console.print(Text(table.title, style="italic"), soft_wrap=True)
    natural, least = _widths(table)
    width = natural if not console.is_terminal else min(natural, console.width)
    if width < least:
        _print_records(console, table)
    else:
        console.print(_framed_table(table, width, width < natural), crop=False, highlight=False)


def _widths(table: Table) -> tuple[int, int]:
    """Return the width of the table without wrapping, and with prose columns as narrow as allowed."""
    natural, least = 1, 1
    for number, column in enumerate(table.columns):
        texts = [column.name if table.frame else "", *(str(row[number]) for row in table.cells)]
        widest = max(cell_len(line) for text in texts for line in text.split("\n"))
        word = max((cell_len(word) for text in texts for word in text.split()), default=0)
        natural += widest + _FRAME
        least += (min(widest, max(PROSE_WIDTH, word)) if column.prose else widest) + _FRAME
    return natural, least


def _framed_table(table: Table, width: int, wrapped: bool) -> RenderableType:
    """Return the table for rich; without `wrapped` no column wraps."""
    if table.frame:
        rendered = rich_table.Table(width=width)
    else:
        rendered = rich_table.Table.grid(padding=(0, 2))
        rendered.width = width
    for number, column in enumerate(table.columns):
        fixed = not (wrapped and column.prose)
        widest = max(
            (cell_len(line) for row in table.cells for line in str(row[number]).split("\n")), default=0
        )
        least = max(widest, cell_len(column.name) if table.frame else 0) if fixed else None
        justify: Any = "right" if column.right else "left"
        rendered.add_column(
            Text(column.name), justify=justify, no_wrap=fixed, overflow="fold", min_width=least
        )
    for row in table.cells:
        rendered.add_row(*(Text(str(cell), style=cell.style) for cell in row))
    return rendered


def _print_records(console: Console, table: Table) -> None:
    """Print each row as lines of `name  value` below its first cell; the terminal wraps longer lines."""
    label = max(len(column.name) for column in table.columns[1:]) if len(table.columns) > 1 else 0
    for first, *others in table.cells:
        console.print(Text(str(first), style="bold"), soft_wrap=True)
        for column, cell in zip(table.columns[1:], others, strict=True):
            if text := str(cell).replace("\n", ", "):
                console.print(
                    Text.assemble(f"  {column.name:<{label}}  ", (text, cell.style)), soft_wrap=True
                )
