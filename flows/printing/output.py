"""Output of all commands: tables as text, or the same numbers as JSON.

A command that prints a table takes the option `json_file: JsonFile = None` and writes all of its results
through an `Output`:

    with report_failures(debug), output(json_file) as page:
        columns = [Column("stage"), Column("time", "seconds", right=True), Column("why", prose=True)]
        rows = [["clone", Cell(12.3, "12 s"), "the seed changed"]]
        page.table("stages", Table("Stages of the run", columns, rows))
        page.text("To start it: dreamgym retrain")
        page.put(run_id=run_id)

- Without `--json` the table and the text go to stdout.
- With `--json` stdout holds one JSON object:
  {"stages": [{"stage": "clone", "seconds": 12.3, "why": ...}], "run_id": ...}.
  All other output of this process and its children goes to stderr.
- With `--json FILE.json` (or `--json=FILE`) the JSON goes to that file, and tables and text to stdout.

A `Cell` holds the value for JSON and the text for the table, so both show the same numbers. A table is never
cut. In a pipe each row is one line, as long as needed. In a terminal, `prose` columns wrap; if that is not
enough, each row becomes a record of `name  value` lines. The JSON is also written when the command ends with
an exit code of its own (`typer.Exit`), but not when it fails.
"""

from __future__ import annotations

import json
import math
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, redirect_stdout, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, TextIO

import typer
from rich import table as rich_table
from rich.cells import cell_len
from rich.console import Console, RenderableType
from rich.text import Text
from typer.core import TyperGroup

from components.errors import ConfigError

STDOUT = Path("-")
"""Target of `--json` without a file."""
JSON_HELP = (
    "Print only JSON on stdout, and messages on stderr. With FILE.json, write the JSON to that file and "
    "print the tables as usual."
)
JsonFile = Annotated[
    Path | None, typer.Option("--json", metavar="[FILE.json]", help=JSON_HELP, show_default=False)
]
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


class Output:
    """The results of a command: printed at once, or collected for JSON.

    Args:
        console: that tables and text are printed to.
        target: file of the JSON; `-`: stdout; None: no JSON.
    """

    def __init__(self, console: Console, target: Path | None = None) -> None:
        self.console = console
        self.target = target
        self.data: dict[str, Any] = {}

    @property
    def prints_json(self) -> bool:
        """True if stdout holds only JSON."""
        return self.target == STDOUT

    def table(self, key: str, table: Table) -> None:
        """Print a table and keep its rows under `key` of the JSON. With an empty key they are not kept.

        With `--json` and no file it is not printed.
        """
        if key:
            self.data[key] = table.to_json()
        if not self.prints_json:
            print_table(self.console, table)

    def text(self, text: str, style: str = "") -> None:
        """Print a line of text, without markup and line breaks; with `--json` it goes to stderr."""
        self.console.print(Text(text, style=style), soft_wrap=True, highlight=False)

    def put(self, **values: Any) -> None:
        """Add values to the JSON; nothing is printed."""
        self.data |= values

    def add(self, key: str, value: Any) -> None:
        """Append a value to the list `key` of the JSON."""
        self.data.setdefault(key, []).append(value)

    def replace(self, values: Mapping[str, Any]) -> None:
        """Replace the JSON collected so far by these values."""
        self.data = dict(values)

    def write(self, stdout: TextIO) -> None:
        """Write the JSON to its target, if there is one. Raises DataError if the file cannot be written."""
        if self.target is None:
            return
        if self.prints_json:
            stdout.write(json.dumps(_json_value(self.data), indent=2, allow_nan=False) + "\n")
            stdout.flush()
            return
        from components.files import write_json

        write_json(self.target, _json_value(self.data))
        self.text(f"Written: {self.target}")


def _json_value(value: Any) -> Any:
    """Return a value that JSON can hold; non-finite numbers become null, other types text."""
    if isinstance(value, Mapping):
        return {str(name): _json_value(entry) for name, entry in value.items()}
    if isinstance(value, list | tuple):
        return [_json_value(entry) for entry in value]
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else None
    return value if value is None or isinstance(value, bool | int | str) else str(value)


def open_closed_streams() -> None:
    """Open /dev/null in place of each standard stream that the caller closed (`>&-`, some services).

    Otherwise the next opened file or database would get the number 1 or 2, and the output of children would
    be written into it.
    """
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        try:
            os.fstat(number)
        except OSError:
            os.set_inheritable(os.open(os.devnull, os.O_RDWR), True)  # takes the lowest free number: this one
        if getattr(sys, name) is None:
            setattr(sys, name, open(number, "w" if number else "r", encoding="utf-8", closefd=False))  # noqa: SIM115


@contextmanager
def output(target: Path | None) -> Iterator[Output]:
    """Yield the output of a command; its JSON is written at the end, also after `typer.Exit`.

    Raises:
        ConfigError: `target` is a directory.
        DataError: no file can be written there.
    """
    if target is not None and target != STDOUT and target.is_dir():
        raise ConfigError(
            f"--json is {target}, which is a directory.",
            "Expected a file.",
            f"Type --json {target / 'results.json'}.",
        )
    if target is not None and target != STDOUT:
        from components.files import require_writable

        require_writable(target.absolute().parent)
    page = Output(Console(markup=False, emoji=False), target)
    with _stdout_for_json() if page.prints_json else _unchanged_stdout() as stdout:
        try:
            yield page
        except typer.Exit:
            page.write(stdout)
            raise
        page.write(stdout)


@contextmanager
def _unchanged_stdout() -> Iterator[TextIO]:
    yield sys.stdout


@contextmanager
def _stdout_for_json() -> Iterator[TextIO]:
    """Yield the real stdout; all other output of this process and its children goes to stderr."""
    real = sys.stdout
    real.flush()
    saved_stdout = None
    with suppress(OSError, ValueError):  # a test replaces stdout by a stream without a number
        if real.fileno() == 1:
            saved_stdout = os.dup(1)
            os.dup2(2, 1)
    with redirect_stdout(sys.stderr):
        if saved_stdout is None:
            yield real
            return
        with os.fdopen(saved_stdout, "w", encoding="utf-8") as stdout:
            try:
                yield stdout
            finally:
                os.dup2(saved_stdout, 1)


def with_json_target(arguments: Sequence[str]) -> list[str]:
    """Return the command line with `--json` replaced by `--json=-` unless a file follows.

    A file is a value that ends in .json. `-` means stdout.
    """
    result = list(arguments)
    end = result.index("--") if "--" in result else len(result)
    for index in range(end):
        following = result[index + 1] if index + 1 < end else ""
        if result[index] == "--json" and following != str(STDOUT) and not following.endswith(".json"):
            result[index] = f"--json={STDOUT}"
    return result


class VerbGroup(TyperGroup):
    """The group of all commands, in which `--json` may have no value."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse the command line, with a value added to each bare `--json`."""
        return super().parse_args(ctx, with_json_target(args))
