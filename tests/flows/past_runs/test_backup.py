"""A back-up of one machine, restored into an empty folder with the commands of docs/guides/backup.md."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from small_job import ROOT, environment_of

from components.config import TrackingConfig
from components.tracking.mlflow_adapter.tracker import Tracker

DOCUMENT = (ROOT / "docs" / "guides" / "backup.md").read_text()


def blocks(heading):
    """Return the indented blocks of a section, each as a list of commands."""
    section = re.split(r"\n(?=## )", DOCUMENT.split(f"\n## {heading}\n", 1)[1])[0]
    return [
        [line.strip() for line in block.splitlines()]
        for block in re.findall(r"(?:^ {4}\S.*\n?)+", section, re.MULTILINE)
    ]


def shell(place: Path, command: str) -> str:
    command = command.replace("dreamgym ", f"'{sys.executable}' -c 'from flows.cli import main; main()' ", 1)
    done = subprocess.run(
        command, shell=True, cwd=place, env=environment_of(place), capture_output=True, text=True
    )
    assert done.returncode == 0, f"{command}\n{done.stdout}{done.stderr}"
    return done.stdout


@pytest.fixture
def restored(finished, tmp_path):
    """The clone with a finished run, and what came back of it in an empty folder."""
    maker, place = tmp_path / "maker", tmp_path / "restored"
    shutil.copytree(finished.kept, maker, symlinks=True)
    shell(maker, "git checkout -q -B main")
    place.mkdir()
    back_up, back, (*_, look) = blocks("One machine")  # the tests' own installation serves
    for command in back_up:
        shell(maker, command)
    original = maker.rename(tmp_path / "gone")  # nothing of the first place may be needed
    for command in back:
        shell(place, command)
    return original, place, shell(place, look)


def test_runs_models_and_commits_come_back(restored):
    original, place, told = restored
    run = json.loads((original / "runs" / "latest" / "manifest.json").read_text())["run_id"]
    assert (place / "runs" / "latest").resolve() == place / "runs" / run
    assert "refined policy" in told and run in told
    assert "refs/exps/" in shell(place, "git for-each-ref refs/exps")
    tracker = Tracker(TrackingConfig(), place)
    version = tracker.alias("policy", "champion")
    weights = tracker.download("policy", version, place / "champion")
    assert any(weights.rglob("*.safetensors"))


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_the_run_is_reproduced_from_the_back_up(restored):
    _, place, _ = restored
    assert re.search(r"\d{2,} metrics equal\.", shell(place, "dreamgym reproduce latest"))
