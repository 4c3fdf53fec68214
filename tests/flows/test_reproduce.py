"""`dreamgym reproduce`, whole: a run made again from its experiment commit comes back, and a number that does not is named."""

from __future__ import annotations

import json
import subprocess

import pytest
from small_job import make_clone, run

from components.errors import NOT_REPRODUCED


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_a_past_run_comes_back_and_a_number_that_does_not_is_named(tmp_path):
    """By its id with a later commit on top, then by its commit with one number of the record bent."""
    clone = make_clone(tmp_path / "clone")
    code, said, _ = run(clone, "promotion.threshold=0", own_server=True)
    assert code == 0, said
    first = (clone / "runs" / "latest").resolve()
    manifest = json.loads((first / "manifest.json").read_text())
    (clone / "flows" / "evaluate.py").write_text("raise SystemExit('code of today')\n")
    subprocess.run(["git", "commit", "-qam", "Another day"], cwd=clone, check=True)
    state = ["git", "status", "--porcelain"]
    before = subprocess.run(state, cwd=clone, capture_output=True, text=True, check=True).stdout

    code, said, _ = run(clone, verb=("reproduce", first.name), small=False, own_server=True)
    assert code == 0, said
    assert said.splitlines()[-1].endswith(" metrics equal.")
    assert subprocess.run(state, cwd=clone, capture_output=True, text=True, check=True).stdout == before
    trees = subprocess.run(["git", "worktree", "list"], cwd=clone, capture_output=True, text=True, check=True).stdout
    assert len(trees.splitlines()) == 1 and sorted(path.name for path in (clone / "runs").iterdir()) == sorted([first.name, "latest"])

    metrics = json.loads((first / "metrics.json").read_text())
    metrics["evaluate/refined/success_rate"]["value"] += 0.25
    (first / "metrics.json").write_text(json.dumps(metrics))
    code, said, _ = run(clone, verb=("reproduce", manifest["data"]["experiment_commit"][:10]), small=False, own_server=True)
    assert code == NOT_REPRODUCED, said
    row = next(line for line in said.splitlines() if "evaluate/refined/success_rate " in line)
    assert "different" in row and "1 metric different" in said.splitlines()[-1]
