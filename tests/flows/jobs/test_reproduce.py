"""`dreamgym reproduce` repeats a finished run from its experiment commit, and names metrics that differ."""

from __future__ import annotations

import io
import json
import shutil
import subprocess

import pytest
from rich.console import Console
from small_job import run
from typer.testing import CliRunner

from components.errors import NOT_REPRODUCED
from components.evaluation.metrics.reproduction import MetricVerdict
from flows.cli import app as cli
from flows.cli.tables.reproduction_table import MAX_METRIC_ROWS, print_reproduction
from flows.jobs.reproduce import Reproduction
from flows.printing.output import Output


@pytest.fixture
def clone(finished, tmp_path):
    """A copy of the clone with a finished run, with later code that could not run it."""
    place = tmp_path / "clone"
    shutil.copytree(finished.kept, place, symlinks=True)
    (place / "flows" / "stages" / "evaluate.py").write_text("raise SystemExit('code of today')\n")
    subprocess.run(["git", "commit", "-qam", "Another day"], cwd=place, check=True)
    return place


@pytest.mark.timeout(900)
def test_a_past_run_is_reproduced_exactly_and_changes_of_the_machine_are_printed_first(clone):
    first = (clone / "runs" / "latest").resolve()
    manifest = json.loads((first / "manifest.json").read_text())
    manifest["environment"]["packages"]["numpy"], manifest["environment"]["hardware"]["cpu"] = (
        "0.1",
        "Another CPU",
    )
    (first / "manifest.json").write_text(json.dumps(manifest))
    runs, state = {path.name for path in (clone / "runs").iterdir()}, _state(clone)

    code, said, _ = run(
        clone, verb=("reproduce", manifest["data"]["experiment_commit"][:10]), small=False, own_server=True
    )
    assert code == 0, said
    began = said.index("Running (no stage is reused")
    assert (
        -1 < said.find("packages: numpy was 0.1, is ") < began
        and -1 < said.find("machine: cpu was Another CPU, is ") < began
    )
    counted = said.splitlines()[-1]
    assert counted.endswith(" metrics equal.") and "," not in counted
    assert sum(1 for line in said.splitlines() if line.startswith("│ evaluate")) == 1, (
        "hundreds of equal metrics are counted by name"
    )
    assert _state(clone) == state and {path.name for path in (clone / "runs").iterdir()} == runs
    assert len(_git(clone, "worktree", "list").splitlines()) == 1


def test_a_metric_that_is_not_reproduced_is_named_and_sets_the_exit_code(clone, quiet_process, monkeypatch):
    """Checkout and data are real. The original run replaces the repeated one, which the test above makes."""
    first = (clone / "runs" / "latest").resolve()
    shutil.copytree(first, clone.parent / "again")
    monkeypatch.setattr("flows.jobs.reproduce._run_job", lambda place, job, config: clone.parent / "again")
    metrics = json.loads((first / "metrics.json").read_text())
    metrics["evaluate/refined/success_rate"]["value"] += 0.25
    (first / "metrics.json").write_text(json.dumps(metrics))
    done = CliRunner().invoke(cli.app, ["reproduce", "--keep", "--root", str(clone)])
    assert done.exit_code == NOT_REPRODUCED, done.output
    row = next(line for line in done.output.splitlines() if "evaluate/refined/success_rate " in line)
    assert "different" in row and "Packages and machine are the same as in the original run." in done.output
    counted = next(line for line in done.output.splitlines() if "metrics equal" in line)
    assert "1 metric different" in counted and "missing" not in counted
    assert (clone / ".dreamgym" / "reproduced" / first.name / "data" / "alfworld" / "trajectories").is_dir()


def test_a_fetched_commit_is_enough_to_reproduce_a_run_of_another_clone(clone, tmp_path, monkeypatch):
    """Another clone, without a run: it fetches the experiments and makes the run again by commit, id and
    name.

    Its path has a space and a letter outside ASCII. The repetition stands in as above.
    """
    first = (clone / "runs" / "latest").resolve()
    commit = json.loads((first / "manifest.json").read_text())["data"]["experiment_commit"]
    other = tmp_path / "the clone of André"
    subprocess.run(["git", "clone", "-q", "--no-local", str(clone), str(other)], check=True)
    shutil.copytree(clone / ".dvc" / "cache", other / ".dvc" / "cache")
    shutil.copytree(first, tmp_path / "again")
    given = []
    monkeypatch.setattr(
        "flows.jobs.reproduce._run_job",
        lambda place, job, config: given.append(config) or tmp_path / "again",
    )

    done = CliRunner().invoke(cli.app, ["reproduce", commit[:12], "--root", str(other)])
    assert done.exit_code == 1 and "refs/exps/*:refs/exps/*" in done.output, done.output
    _git(other, "fetch", "-q", "origin", "refs/exps/*:refs/exps/*")
    for name in (commit[:12], first.name, f"run-{first.name}"):
        done = CliRunner().invoke(cli.app, ["reproduce", name, "--root", str(other)])
        assert done.exit_code == 0 and "metrics equal" in done.output, done.output
    assert {config.read_text() for config in given} == {(first / "config.json").read_text()} and len(
        given
    ) == 3
    head = _git(other, "rev-parse", "HEAD").strip()
    done = CliRunner().invoke(cli.app, ["reproduce", head, "--root", str(other)])
    assert done.exit_code == 1 and f"Commit {head[:12]} has the record of no run in it" in done.output, (
        done.output
    )
    assert not (other / "runs").exists()


def test_a_table_has_a_row_for_each_metric_or_counts_those_that_are_equal(tmp_path):
    odd = [
        MetricVerdict("loss/last", 0.5, 0.5000000001, "within tolerance"),
        MetricVerdict("kl", 0.1, None, "missing"),
    ]
    few = [MetricVerdict("reward", 0.25, 0.25, "equal"), *odd]
    many = [
        *(MetricVerdict(f"fidelity/{number}", 1.0, 1.0, "equal") for number in range(MAX_METRIC_ROWS)),
        *few,
    ]
    told = {}
    for name, found in (("few", few), ("many", many)):
        console = Console(file=io.StringIO(), width=120)
        print_reproduction(Output(console), Reproduction("r1", tmp_path, found))
        told[name] = [
            [cell.strip() for cell in line.split("│")[1:5]]
            for line in console.file.getvalue().splitlines()
            if "│" in line
        ]
    rows = [["loss/last", "0.5", "0.5", "within tolerance"], ["kl", "0.1", "-", "missing"]]
    assert told["few"] == [["reward", "0.25", "0.25", "equal"], *rows]
    assert told["many"] == [
        *rows,
        [f"fidelity: {MAX_METRIC_ROWS} metrics", "", "", "equal"],
        ["reward: 1 metric", "", "", "equal"],
    ]


def _state(clone):
    return _git(clone, "status", "--porcelain"), _git(clone, "log", "-1", "--format=%H")


def _git(clone, *arguments):
    return subprocess.run(["git", *arguments], cwd=clone, capture_output=True, text=True, check=True).stdout
