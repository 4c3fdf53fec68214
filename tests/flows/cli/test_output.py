"""Tables are never cut, and with `--json` stdout holds only JSON, for every command that prints a table."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import typer
from rich.console import Console
from typer.main import get_command
from typer.testing import CliRunner

from flows.cli import app as cli
from flows.cli import command
from flows.printing.output import Output, output, with_json_target
from flows.printing.table import Cell, Column, Table, print_table

ROOT = Path(__file__).parents[3]
WITHOUT_TABLES = {"config", "model", "serve", "ui"}
"""Commands without `--json`: one that prints JSON anyway, and those that print only addresses."""
METRIC = "fidelity/next_state_exact/determined/held_out_worlds/changed_3_plus"
RUNS = ("20260131-142530-9f3a", "20260131-151200-01bc", "20260131-160114-77de")
REASON = "the interval of the paired difference from the full model leaves out zero in two of three seeds"
TABLE = Table(
    "Metrics of three runs",
    [Column("metric"), *(Column(run, right=True) for run in RUNS), Column("why", "reason", prose=True)],
    [[METRIC, Cell(0.25, "25.0%"), 1, None, REASON]],
)


def verbs(command=None, path=()):
    """Return the words of each command, such as ("ablate", "fidelity"), and the command."""
    command = command or get_command(cli.app)
    below = getattr(command, "commands", None)
    if not below:
        return {path: command}
    return {
        words: leaf for name, child in below.items() for words, leaf in verbs(child, (*path, name)).items()
    }


def shown(table, width, terminal):
    console = Console(file=io.StringIO(), width=width, force_terminal=terminal, color_system=None)
    print_table(console, table)
    return console.file.getvalue()


@pytest.mark.parametrize("words", verbs(), ids=" ".join)
def test_every_verb_that_prints_a_table_takes_json(words):
    options = {option for parameter in verbs()[words].params for option in parameter.opts}
    assert ("--json" in options) is (words[0] not in WITHOUT_TABLES)


@pytest.mark.parametrize("words", verbs(), ids=" ".join)
def test_no_help_is_cut_at_80_columns(words, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    said = CliRunner().invoke(cli.app, [*words, "--help"]).output
    assert "…" not in said and "Usage: " in said
    for parameter in verbs()[words].params:
        assert all(option in said for option in parameter.opts if option.startswith("--")), said


@pytest.mark.parametrize("width", [20, 80, 100, 120, 400])
@pytest.mark.parametrize("terminal", [True, False])
def test_no_cell_is_cut_at_any_width(width, terminal):
    text = shown(TABLE, width, terminal)
    assert "…" not in text
    for words in (METRIC, *RUNS[:2], "25.0%"):
        assert words in text, text
    rejoined = " ".join(line.strip("│ ").split("│")[-1].strip() for line in text.splitlines())
    assert all(word in rejoined for word in REASON.split())


def test_a_pipe_has_one_line_a_row():
    lines = [line for line in shown(TABLE, 80, terminal=False).splitlines() if METRIC in line]
    assert len(lines) == 1 and REASON in lines[0]


def test_a_narrow_terminal_stacks_a_row_into_a_record():
    lines = shown(TABLE, 80, terminal=True).splitlines()
    assert METRIC in lines and f"  {RUNS[0]}  25.0%" in lines


def test_prose_wraps_before_a_row_is_stacked():
    table = Table("", [Column("metric"), Column("why", prose=True)], [[METRIC[:30], REASON]])
    lines = shown(table, 80, terminal=True).splitlines()
    assert max(map(len, lines)) <= 80 and any("│" in line for line in lines)


def test_json_has_the_numbers_of_the_table():
    assert TABLE.to_json() == [{"metric": METRIC, RUNS[0]: 0.25, RUNS[1]: 1, RUNS[2]: None, "reason": REASON}]


def test_a_number_that_is_not_finite_is_null(tmp_path):
    with output(tmp_path / "found.json") as page:
        page.put(rate=float("nan"), path=tmp_path, counts=(1, True))
    assert json.loads((tmp_path / "found.json").read_text()) == {
        "rate": None,
        "path": str(tmp_path),
        "counts": [1, True],
    }


def test_a_directory_with_brackets_or_colons_is_printed_unchanged(capsys):
    command.print_status("Checking out /data/a [m] b/:bug: [/x] ...")
    assert capsys.readouterr().err == "Checking out /data/a [m] b/:bug: [/x] ...\n"
    command.out.print("/data/[m]/:bug:", soft_wrap=True)
    assert capsys.readouterr().out == "/data/[m]/:bug:\n"


def test_text_is_printed_without_markup_and_line_breaks():
    console = Console(file=io.StringIO(), width=20)
    Output(console).text("[red] /a/path/that/is/longer/than/the/terminal is whole")
    assert console.file.getvalue() == "[red] /a/path/that/is/longer/than/the/terminal is whole\n"


@pytest.mark.parametrize(
    ("given", "parsed"),
    [
        (["lineage", "--json", "champion"], ["lineage", "--json=-", "champion"]),
        (["evaluate", "--json", "seed=1"], ["evaluate", "--json=-", "seed=1"]),
        (["bench", "dream", "--json", "a.json"], ["bench", "dream", "--json", "a.json"]),
        (["pool", "a", "--json=out.txt"], ["pool", "a", "--json=out.txt"]),
        (["pool", "a", "--json"], ["pool", "a", "--json=-"]),
        (["pool", "--json", "-", "a"], ["pool", "--json", "-", "a"]),
        (["pool", "--", "--json"], ["pool", "--", "--json"]),
    ],
)
def test_json_takes_a_file_that_ends_in_json_and_nothing_else(given, parsed):
    assert with_json_target(given) == parsed


PROGRAM = """
import subprocess, sys, typer
from flows.printing.output import STDOUT, output
from flows.printing.table import Column, Table
with output(STDOUT) as page:
    print("of this process")
    subprocess.run([sys.executable, "-c", "print('of a child')"], check=True)
    page.table("rows", Table("A title", [Column("a")], [[1]]))
    page.text("a message")
    raise typer.Exit(4)
"""


def test_stdout_holds_json_alone_whoever_prints_and_whatever_the_exit_code():
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert json.loads(done.stdout) == {"rows": [{"a": 1}]}
    assert (
        all(words in done.stderr for words in ("of this process", "of a child", "a message"))
        and "A title" not in done.stderr
    )


def test_a_verb_that_fails_leaves_stdout_empty(tmp_path):
    command = [sys.executable, "-m", "flows.cli", "compare", "x", "y", "--json", "--root", str(tmp_path)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 1 and done.stdout == "" and "There is no run 'x'" in done.stderr


def test_the_json_is_written_where_the_verb_ends_with_a_code_of_its_own(tmp_path):
    with pytest.raises(typer.Exit), output(tmp_path / "found.json") as page:
        page.put(promoted=False)
        raise typer.Exit(4)
    assert json.loads((tmp_path / "found.json").read_text()) == {"promoted": False}


@pytest.mark.parametrize("closed", [">&-", "2>&-", "<&- >&- 2>&-"])
def test_with_closed_streams_no_print_lands_in_a_file(tmp_path, closed):
    code = """
import os
from flows.cli import app as cli
cli.app = lambda: None
cli.main()
with open("database", "w") as database:
    assert database.fileno() > 2
    print("said")
    assert os.system("echo said && echo said >&2") == 0, "a child has the streams too"
"""
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "CODE": code}
    done = subprocess.run(
        f'exec "{sys.executable}" -c "$CODE" {closed}', shell=True, cwd=tmp_path, env=environment
    )
    assert done.returncode == 0 and (tmp_path / "database").read_bytes() == b""
