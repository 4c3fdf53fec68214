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
from pathlib import Path
from typing import Annotated, Any, TextIO

import typer
from rich.console import Console
from rich.text import Text
from typer.core import TyperGroup

from components.errors import ConfigError
from flows.printing.table import Table, print_table

STDOUT = Path("-")
"""Target of `--json` without a file."""
JSON_HELP = (
    "Print only JSON on stdout, and messages on stderr. With FILE.json, write the JSON to that file and "
    "print the tables as usual."
)
JsonFile = Annotated[
    Path | None, typer.Option("--json", metavar="[FILE.json]", help=JSON_HELP, show_default=False)
]


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
