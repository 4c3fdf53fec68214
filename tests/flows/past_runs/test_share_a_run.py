"""Two clones share a run with the commands of docs/guides/resume-and-reproduce.md.

The DVC remote is added after the run. The second clone has no `seed/`, so all data comes from that remote.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from small_job import ROOT

from components.trajectories.dvc.pointer import hashes_of, read_pointer

DOCUMENT = ROOT / "docs" / "guides" / "resume-and-reproduce.md"
SECTION = "## Share a run"
EXAMPLE_REMOTE = "s3://bucket/dreamgym"


def command_blocks(document, heading):
    """Return the indented blocks of a section, each as a list of lines, with comments."""
    section = re.split(r"\n(?=## )", document.split(f"\n{heading}\n", 1)[1])[0]
    blocks = re.findall(r"(?:^ {4}\S.*\n?)+", section, re.MULTILINE)
    return [[line.strip() for line in block.splitlines()] for block in blocks]


def test_the_commands_are_read_from_the_document():
    text = "\n## A\n\n    one --x   # why\n    two\n\nThen:\n\n    three\n\n## B\n\n    four\n"
    assert command_blocks(text, "## A") == [["one --x   # why", "two"], ["three"]]
    sharing = command_blocks(DOCUMENT.read_text(), SECTION)
    assert [len(block) for block in sharing] == [4, 5] and sharing[1][3].startswith(
        "dreamgym reproduce run-<id> "
    )


@pytest.fixture
def team(finished, tmp_path):
    """The clone with the run, a new clone, the run's id, and an empty place for data."""
    git_remote, maker, other = tmp_path / "remote.git", tmp_path / "maker", tmp_path / "other"
    git(tmp_path, "init", "-q", "--bare", str(git_remote))
    shutil.copytree(finished.kept, maker, symlinks=True)
    git(maker, "checkout", "-q", "-B", "main")
    git(maker, "remote", "set-url", "origin", str(git_remote))
    git(git_remote, "symbolic-ref", "HEAD", "refs/heads/main")
    git(maker, "push", "-q", "origin", "main")
    git(tmp_path, "clone", "-q", str(git_remote), str(other))
    shutil.rmtree(other / "seed")
    return maker, other, (maker / "runs" / "latest").resolve().name, tmp_path / "team-data"


@pytest.mark.timeout(1800)
@pytest.mark.parametrize("reproduces", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_a_second_clone_reproduces_a_run_with_the_commands_of_the_document(team, reproduces):
    """`dreamgym reproduce` takes as long as a run, so only the other commands are tested on every change."""
    maker, other, run, place = team
    of_maker, of_other = command_blocks(DOCUMENT.read_text(), SECTION)
    told = ""
    for clone, commands in ((maker, of_maker), (other, of_other)):
        for command in commands:
            if command.startswith("dreamgym reproduce") and not reproduces:
                continue
            told = shell(clone, command.replace("<id>", run).replace(EXAMPLE_REMOTE, str(place)))
            if command.startswith("dvc exp list"):
                assert f"run-{run}" in told
            if command.startswith("dreamgym reproduce"):
                assert re.fullmatch(r"\d{2,} metrics equal\.", told.splitlines()[-1]), told
    manifest = json.loads((maker / "runs" / run / "manifest.json").read_text())
    assert (
        f"of run {run}" in told
        and hashes_of(read_pointer(other / "data.dvc")) == manifest["data"]["parts_out"]
    )
    assert not (other / "runs").exists() and git(maker, "status", "--porcelain") == "M .dvc/config"


def shell(clone, command):
    """Run a command in the clone, which must succeed; return its standard output."""
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    unset = ("PREFECT_API_URL", "DVC_NO_ANALYTICS")
    environment = {name: value for name, value in os.environ.items() if name not in unset}
    environment |= {
        "PYTHONPATH": str(clone),
        "PATH": path,
        "PREFECT_HOME": str(clone / ".dreamgym" / "prefect"),
    }
    done = subprocess.run(
        command, cwd=clone, env=environment, shell=True, capture_output=True, text=True, timeout=1700
    )
    assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
    return done.stdout


def git(place, *arguments):
    return subprocess.run(
        ["git", *arguments], cwd=place, capture_output=True, text=True, check=True
    ).stdout.strip()
