"""`dreamgym reproduce`, whole: a finished run made again from its experiment commit comes back, and a number that does not is named."""

from __future__ import annotations

import json
import shutil
import subprocess

import pytest
from small_job import run

from components.errors import NOT_REPRODUCED


@pytest.mark.timeout(900)
def test_a_past_run_comes_back_and_a_number_that_does_not_is_named(finished, tmp_path):
    """Under code of a later day that could not run it, and with one number of its record bent: that one differs, all others are equal."""
    clone = tmp_path / "clone"
    shutil.copytree(finished.kept, clone, symlinks=True)
    first = (clone / "runs" / "latest").resolve()
    commit = json.loads((first / "manifest.json").read_text())["data"]["experiment_commit"]
    metrics = json.loads((first / "metrics.json").read_text())
    metrics["evaluate/refined/success_rate"]["value"] += 0.25
    (first / "metrics.json").write_text(json.dumps(metrics))
    (clone / "flows" / "evaluate.py").write_text("raise SystemExit('code of today')\n")
    subprocess.run(["git", "commit", "-qam", "Another day"], cwd=clone, check=True)
    runs, state = {path.name for path in (clone / "runs").iterdir()}, _state(clone)

    code, said, _ = run(clone, verb=("reproduce", commit[:10]), small=False, own_server=True)
    assert code == NOT_REPRODUCED, said
    row = next(line for line in said.splitlines() if "evaluate/refined/success_rate " in line)
    assert "different" in row
    counted = said.splitlines()[-1]
    assert "1 metric different" in counted and "metrics equal" in counted and "missing" not in counted
    assert _state(clone) == state and {path.name for path in (clone / "runs").iterdir()} == runs
    assert len(_git(clone, "worktree", "list").splitlines()) == 1


def _state(clone):
    return _git(clone, "status", "--porcelain"), _git(clone, "log", "-1", "--format=%H")


def _git(clone, *arguments):
    return subprocess.run(["git", *arguments], cwd=clone, capture_output=True, text=True, check=True).stdout
