"""`dreamgym data use RUN` switches the clone to a run's version; unsaved data is never lost."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest
from typer.testing import CliRunner

from components.errors import DataError
from components.tracking.manifest import DataLineage, Manifest
from components.tracking.run_environment import Environment, Git
from components.trajectories.dvc import snapshots, versions
from components.trajectories.dvc.pointer import hashes_of
from flows.cli import app as cli
from flows.past_runs.use_data import adopt, plan_adoption

TASKS, REPLAY = "data/alfworld/tasks/train.parquet", "data/alfworld/replay"
DREAMS = f"{REPLAY}/1.parquet"
RUN = "20260131-142530-9f3a"


@pytest.fixture(scope="module")
def finished_run(tmp_path_factory):
    """A clone with a committed version, and a run that made another one."""
    root = tmp_path_factory.mktemp("clone")
    (root / TASKS).parent.mkdir(parents=True)
    (root / TASKS).write_text("tasks")
    (root / ".gitignore").write_text("/data/\n/.dreamgym/\n/runs/\n")
    git(root, "init", "-q")
    snapshots.snapshot(root)
    git(root, "add", "-A")
    git(root, "commit", "-qm", "Start")
    made = versions.extend_version(
        root, snapshots.data_parts(root), REPLAY, lambda log: (log / "1.parquet").write_text("d")
    )
    data = DataLineage(dvc_in=snapshots.data_hash(root), dvc_out=made.hash, parts_out=hashes_of(made.parts))
    run = Manifest(
        run_id=RUN, status="finished", environment=Environment(git=Git(commit="0" * 40)), config={}, data=data
    )
    (root / "runs" / RUN).mkdir(parents=True)
    run.save(root / "runs" / RUN)
    return root, made


@pytest.fixture
def clone(finished_run, tmp_path):
    """A copy of it that a test may change."""
    return Path(shutil.copytree(finished_run[0], tmp_path / "clone", symlinks=True)), finished_run[1]


def git(root, *arguments):
    identity = ["-c", "user.name=T", "-c", "user.email=t@example.org"]
    return subprocess.run(
        ["git", *identity, *arguments], cwd=root, check=True, capture_output=True, text=True
    ).stdout.strip()


def test_a_dry_run_changes_nothing_and_the_command_moves_data_and_pointer(clone):
    root, made = clone
    done = CliRunner().invoke(cli.app, ["data", "use", RUN, "--dry-run", "--root", str(root)])
    assert (
        done.exit_code == 0 and "data/alfworld/replay" in done.output and "Nothing was changed" in done.output
    ), done.output
    assert git(root, "status", "--porcelain") == "" and not (root / DREAMS).exists()
    done = CliRunner().invoke(cli.app, ["data", "use", RUN, "--root", str(root)])
    assert done.exit_code == 0 and "git commit data.dvc" in done.output, done.output
    assert snapshots.data_hash(root) == made.hash and (root / DREAMS).read_text() == "d"
    assert git(root, "status", "--porcelain") == "M data.dvc"
    git(root, "checkout", "-q", "data.dvc")
    snapshots.pull(root)
    assert not (root / DREAMS).exists() and not (root / DREAMS).parent.exists(), (
        "and the way back that it names"
    )


def test_unsaved_data_and_uncommitted_versions_are_never_lost(clone):
    root, _ = clone
    (root / TASKS).unlink()
    (root / TASKS).write_text("my own tasks")
    with pytest.raises(DataError, match="in no version: alfworld/tasks/train.parquet.*dreamgym data save"):
        plan_adoption(root, RUN)
    snapshots.snapshot(root)
    with pytest.raises(DataError, match="names a version that is in no commit.*git commit data.dvc"):
        plan_adoption(root, RUN)
    git(root, "commit", "-qm", "My data", "data.dvc")
    adopt(root, plan_adoption(root, RUN))
    assert (root / TASKS).read_text() == "tasks"


def test_a_run_without_a_version_of_its_own_is_refused(clone):
    root, _ = clone
    manifest = Manifest.load(root / "runs" / RUN)
    manifest.data.dvc_out, manifest.data.parts_out = "", {}
    manifest.save(root / "runs" / RUN)
    with pytest.raises(DataError, match="made no version of data/"):
        plan_adoption(root, RUN)
