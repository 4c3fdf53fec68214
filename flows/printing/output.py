"""What a verb prints: tables for people, or the same numbers as JSON alone on stdout. One mechanism for all
verbs.

A verb that prints a table takes the option `json_file: JsonFile = None` and writes all of its results through
an `Output`:

    with reported(debug), output(json_file) as page:
        columns = [Column("stage"), Column("time", "seconds", right=True), Column("why", prose=True)]
        page.table("stages", Table("Stages of the run", columns, [["clone", Cell(12.3, "12 s"), "the seed
        changed"]])) page.text("To start it: dreamgym retrain") page.put(run_id=run_id)

- Without `--json` the table and the text go to stdout.
- With `--json` stdout holds one JSON object: {"stages": [{"stage": "clone", "seconds": 12.3, "why": ...}],
  "run_id": ...}.
  Everything else that is printed meanwhile, by this process or a child, goes to stderr.
- With `--json FILE.json` (or `--json=FILE`) the JSON goes to that file, and tables and text to stdout.

A `Cell` holds the value for JSON and the text for people, so both show the same numbers.
A table is never cut. In a pipe it is as wide as it has to be, one line a row. In a terminal `prose` columns
wrap. Where that is not enough, each row becomes a record of `name  value` lines. The JSON is also written
when the verb ends with an exit code of its own (`typer.Exit`), not when it fails.
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
"""The target of `--json` without a file."""
JSON_HELP = (
    "Print the results as JSON alone on stdout, messages on stderr; with FILE.json, write them "
    "there beside the tables."
)
JsonFile = Annotated[
    Path | None, typer.Option("--json", metavar="[FILE.json]", help=JSON_HELP, show_default=False)
]
PROSE_WIDTH = 24
"""Columns of the terminal that a column of prose has at least."""
_FRAME = 3
"""Characters that the frame of a table adds to each column; one more ends the row."""


@dataclass(frozen=True)
class Cell:
    """One value of a table: `value` for JSON, `text` for people; None as text: the value as it is."""

    value: Any
    text: str | None = None
    style: str = ""

    def __str__(self) -> str:
        return ("" if self.value is None else str(self.value)) if self.text is None else self.text


@dataclass(frozen=True)
class Column:
    """A column: its heading, its key in JSON (by default the heading), and whether its text may be wrapped
    (`prose`).
    """

    name: str
    key: str = ""
    right: bool = False
    prose: bool = False


@dataclass(frozen=True)
class Table:
    """A title, columns, and rows of as many cells; a plain value stands for `Cell(value)`. Without `frame` no
    headings are printed.
    """

    title: str
    columns: Sequence[Column]
    rows: Sequence[Sequence[Any]] = field(default_factory=list)
    frame: bool = True

    @property
    def cells(self) -> list[list[Cell]]:
        """The rows, all of cells."""
        return [[value if isinstance(value, Cell) else Cell(value) for value in row] for row in self.rows]

    def to_json(self) -> list[dict[str, Any]]:
        """One object a row."""
        keys = [column.key or column.name for column in self.columns]
        return [dict(zip(keys, (cell.value for cell in row), strict=True)) for row in self.cells]


def print_table(console: Console, table: Table) -> None:
    """Print the table with every cell whole: wide, wrapped in columns of prose, or as records."""
    if table.title:
        console.print(Text(table.title, style="italic"), soft_wrap=True)
    natural, least = _widths(table)
    width = natural if not console.is_terminal else min(natural, console.width)
    if width < least:
        _print_records(console, table)
    else:
        console.print(_framed(table, width, width < natural), crop=False, highlight=False)


def _widths(table: Table) -> tuple[int, int]:
    """Width of the whole table where nothing is wrapped, and where prose is wrapped as narrow as it may
    be.
    """
    natural, least = 1, 1
    for number, column in enumerate(table.columns):
        texts = [column.name if table.frame else "", *(str(row[number]) for row in table.cells)]
        widest = max(cell_len(line) for text in texts for line in text.split("\n"))
        word = max((cell_len(word) for text in texts for word in text.split()), default=0)
        natural += widest + _FRAME
        least += (min(widest, max(PROSE_WIDTH, word)) if column.prose else widest) + _FRAME
    return natural, least


def _framed(table: Table, width: int, wrapped: bool) -> RenderableType:
    if table.frame:
        made = rich_table.Table(width=width)
    else:
        made = rich_table.Table.grid(padding=(0, 2))
        made.width = width
    for number, column in enumerate(table.columns):
        fixed = not (wrapped and column.prose)
        widest = max(
            (cell_len(line) for row in table.cells for line in str(row[number]).split("\n")), default=0
        )
        least = max(widest, cell_len(column.name) if table.frame else 0) if fixed else None
        justify: Any = "right" if column.right else "left"
        made.add_column(Text(column.name), justify=justify, no_wrap=fixed, overflow="fold", min_width=least)
    for row in table.cells:
        made.add_row(*(Text(str(cell), style=cell.style) for cell in row))
    return made


def _print_records(console: Console, table: Table) -> None:
    """Each row as lines of `name  value`, the first column as its heading; the terminal wraps what is still
    longer.
    """
    label = max(len(column.name) for column in table.columns[1:]) if len(table.columns) > 1 else 0
    for first, *others in table.cells:
        console.print(Text(str(first), style="bold"), soft_wrap=True)
        for column, cell in zip(table.columns[1:], others, strict=True):
            if text := str(cell).replace("\n", ", "):
                console.print(
                    Text.assemble(f"  {column.name:<{label}}  ", (text, cell.style)), soft_wrap=True
                )


class Output:
    """Where a verb puts its results: printed at once, or collected for JSON. `data` is the JSON object so
    far.
    """

    def __init__(self, console: Console, target: Path | None = None) -> None:
        self.console, self.target = console, target
        self.data: dict[str, Any] = {}

    @property
    def prints_json(self) -> bool:
        """True if stdout is for JSON alone."""
        return self.target == STDOUT

    def table(self, key: str, table: Table) -> None:
        """Print a table, or keep its rows under `key` of the JSON; with an empty key it is printed alone."""
        if key:
            self.data[key] = table.to_json()
        if not self.prints_json:
            print_table(self.console, table)

    def text(self, text: str, style: str = "") -> None:
        """Print a line of words, no markup, in which nothing is broken by a line break; with `--json` it goes
        to stderr.
        """
        self.console.print(Text(text, style=style), soft_wrap=True, highlight=False)

    def put(self, **values: Any) -> None:
        """Add values to the JSON alone."""
        self.data |= values

    def add(self, key: str, value: Any) -> None:
        """Append a value to the list `key` of the JSON."""
        self.data.setdefault(key, []).append(value)

    def replace(self, values: Mapping[str, Any]) -> None:
        """Make the JSON these values, whatever was put before."""
        self.data = dict(values)

    def write(self, stdout: TextIO) -> None:
        """Write the JSON to its target, if there is one. Raises DataError if the disk refuses."""
        if self.target is None:
            return
        if self.prints_json:
            stdout.write(json.dumps(_plain(self.data), indent=2, allow_nan=False) + "\n")
            stdout.flush()
            return
        from components.files import write_json

        write_json(self.target, _plain(self.data))
        self.text(f"Written: {self.target}")


def _plain(value: Any) -> Any:
    """The value as JSON has it: a number that is not finite is null, what JSON does not know is text."""
    if isinstance(value, Mapping):
        return {str(name): _plain(entry) for name, entry in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(entry) for entry in value]
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else None
    return value if value is None or isinstance(value, bool | int | str) else str(value)


def open_closed_streams() -> None:
    """Open /dev/null in place of each standard stream that the caller has closed (`>&-`, some services).

    Otherwise the next file or database would get the number 1 or 2, and whatever a child prints would be
    written into it.
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
    """The output of a verb; its JSON is written when the verb has ended, also with an exit code of its own.

    Raises:
        ConfigError: `target` is a directory.
        DataError: no file can be made there.
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
    with _stdout_for_json() if page.prints_json else _stdout_as_it_is() as stdout:
        try:
            yield page
        except typer.Exit:
            page.write(stdout)
            raise
        page.write(stdout)


@contextmanager
def _stdout_as_it_is() -> Iterator[TextIO]:
    yield sys.stdout


@contextmanager
def _stdout_for_json() -> Iterator[TextIO]:
    """The real stdout; what else this process and its children print meanwhile goes to stderr."""
    real = sys.stdout
    real.flush()
    kept = None
    with suppress(OSError, ValueError):  # not the process's own stream: a test's
        if real.fileno() == 1:
            kept = os.dup(1)
            os.dup2(2, 1)
    with redirect_stdout(sys.stderr):
        if kept is None:
            yield real
            return
        with os.fdopen(kept, "w", encoding="utf-8") as stdout:
            try:
                yield stdout
            finally:
                os.dup2(kept, 1)


def with_json_target(arguments: Sequence[str]) -> list[str]:
    """The command line with a value for each bare `--json`: the file that follows if it ends in .json, else
    `-`, which means stdout.
    """
    given = list(arguments)
    end = given.index("--") if "--" in given else len(given)
    for place in range(end):
        follower = given[place + 1] if place + 1 < end else ""
        if given[place] == "--json" and follower != str(STDOUT) and not follower.endswith(".json"):
            given[place] = f"--json={STDOUT}"
    return given


class VerbGroup(TyperGroup):
    """The group of all verbs, in which `--json` may stand without a value."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse the command line."""
        return super().parse_args(ctx, with_json_target(args))
