"""Versions and experiment commits outside the workspace, and their use in a second clone, with real DVC."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from components.errors import DataError
from components.tracking.experiment_files import experiment_files
from components.trajectories.dvc import snapshots, versions
from components.trajectories.dvc.dvc_cache import remote_to_push_to
from components.trajectories.dvc.experiment_commit import commit_experiment, experiments
from components.trajectories.dvc.pointer import changed_parts, parse_pointer, pointer_text, read_pointer

TASKS, REPLAY = "data/world/tasks/train.txt", "data/world/replay"
METRICS = {
    "evaluate/refined/success_rate": {"value": 0.5, "n": 4},
    "cost/real_interactions": {"value": 48.0, "n": 1},
}
GUIDE = Path(__file__).parents[2] / "docs" / "guides" / "resume-and-reproduce.md"


def git(root: Path, *arguments: str) -> str:
    identity = ["-c", "user.name=T", "-c", "user.email=t@example.org"]
    return subprocess.run(
        ["git", *identity, *arguments], cwd=root, check=True, capture_output=True, text=True
    ).stdout.strip()


def dvc(root: Path, *arguments: str) -> str:
    return subprocess.run(
        [sys.executable, "-m", "dvc", *arguments], cwd=root, check=True, capture_output=True, text=True
    ).stdout


@pytest.fixture(scope="module")
def saved_run(tmp_path_factory):
    """(clone in a folder with an unusual name, version of a run, its commit), with an edit of the user."""
    place = tmp_path_factory.mktemp("it's é one") / "the first"
    git(place.parent, "init", "-q", str(place))
    (place / ".gitignore").write_text("/data/\n/.dreamgym/\n/runs/\n")
    (place / "code.py").write_text("a = 1\n")
    (place / TASKS).parent.mkdir(parents=True)
    (place / TASKS).write_text("tasks")
    snapshots.snapshot(place)
    snapshots.push(place, snapshots.SEED)
    git(place, "add", "-A")
    git(place, "commit", "-qm", "data")
    for key, value in (("user.name", "T"), ("user.email", "t@example.org")):
        git(place, "config", key, value)
    (place / "code.py").write_text("a = 2\n")
    version = versions.extend_version(
        place, snapshots.data_parts(place), REPLAY, lambda log: (log / "1.txt").write_text("dreams")
    )
    files = {
        f"experiment/{path}": text.encode()
        for path, text in experiment_files(METRICS, {"seed": 3}, {}).items()
    }
    files |= {"data.dvc": pointer_text(version.parts).encode(), "runs/r1/manifest.json": b"{}"}
    return place, version, commit_experiment(place, "run-r1", files)


def test_a_run_does_not_change_data_and_git(saved_run):
    place, version, _ = saved_run
    assert git(place, "status", "--porcelain") == "M code.py", "only the edit of the user"
    assert not (place / REPLAY).exists() and dvc(place, "status").startswith(
        "Data and pipelines are up to date"
    )
    assert (
        not (place / ".dvc" / "config.local").exists()
        and list((place / ".dreamgym" / "versions").iterdir()) == []
    )
    (change,) = changed_parts(read_pointer(place / "data.dvc"), version.parts)
    assert change.path == REPLAY and change.before is None and change.after.files == 1


def test_the_commit_has_the_version_the_edit_and_a_table_of_metrics(saved_run):
    place, version, commit = saved_run
    assert experiments(place) == {"run-r1": commit}
    assert parse_pointer(git(place, "show", f"{commit}:data.dvc"), "commit") == version.parts
    assert git(place, "show", f"{commit}:code.py") == "a = 2"
    shown = {
        row["rev"]: row
        for row in json.loads(dvc(place, "exp", "show", "--json"))[1]["experiments"][0]["revs"]
    }
    (row,) = shown.values()
    assert row["data"]["metrics"]["experiment/metrics.json"]["data"]["refined"] == 0.5
    assert row["data"]["params"]["experiment/params.yaml"]["data"]["seed"] == 3
    difference = json.loads(dvc(place, "metrics", "diff", "--json", "HEAD", "run-r1"))
    assert difference["experiment/metrics.json"]["refined"]["new"] == 0.5
    assert '"real_steps": 48\n' in git(place, "show", f"{commit}:experiment/metrics.json") + "\n"
    dvc(place, "plots", "diff", "HEAD", "run-r1", "--out", ".dreamgym/plots")
    page = (place / ".dreamgym/plots/index.html").read_text()
    assert "Validation games won, by policy" in page and "share of games won" in page


def test_the_documented_table_has_a_row_only_for_runs(saved_run):
    place, _, _ = saved_run
    documented = next(
        line for line in GUIDE.read_text().splitlines() if line.startswith("    dvc exp show $(")
    )
    git(place, "commit", "-q", "--allow-empty", "-m", "A commit without a run")
    try:
        environment = {
            **os.environ,
            "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        }  # as in an activated environment
        command = f"{documented.split('  #')[0]} --md"
        shown = subprocess.run(
            command, cwd=place, env=environment, shell=True, capture_output=True, text=True
        )
        rows = [line.split("|")[1].strip() for line in shown.stdout.splitlines() if line.startswith("|")]
        assert [row for row in rows if "run-r1" in row] and len(rows) == 5, (
            shown
        )  # head, rule, workspace, its commit, it
    finally:
        git(place, "reset", "-q", "--soft", "HEAD~1")


def test_the_same_content_gives_the_same_version_and_a_missing_one_is_refused(saved_run):
    place, version, _ = saved_run
    repeated = versions.extend_version(
        place, {out.path: out.md5 for out in version.parts}, REPLAY, lambda log: None
    )
    assert repeated.parts == version.parts and repeated.hash == version.hash
    whole = {"data": snapshots.data_hash(place)}
    with pytest.raises(DataError, match="objects of the version that data.dvc names are missing"):
        versions.outs_of(place, whole)


def test_a_second_clone_gets_the_version_by_the_documented_commands(saved_run, tmp_path):
    """`dvc exp push --no-cache` pushes the commit. The remote for data was added after the run."""
    place, version, commit = saved_run
    dvc(place, "remote", "add", "-d", "team", str(tmp_path / "store"))
    git(tmp_path, "init", "-q", "--bare", str(tmp_path / "hub"))
    git(place, "remote", "add", "hub", str(tmp_path / "hub"))
    git(place, "push", "-q", "hub", "HEAD:refs/heads/main")
    dvc(place, "exp", "push", "--no-cache", "hub", "run-r1")
    assert remote_to_push_to(place) == "team" and versions.push_outs(place, version.parts) == "team"
    with pytest.raises(DataError, match="knows no remote 'tam' in this clone.*Expected one of: .*team"):
        versions.push_outs(place, version.parts, "tam")

    second = tmp_path / "the second é"
    git(tmp_path, "clone", "-q", "--branch", "main", str(tmp_path / "hub"), str(second))
    dvc(second, "remote", "add", "--local", "team", str(tmp_path / "store"))
    git(second, "fetch", "-q", "origin", "refs/exps/*:refs/exps/*")
    assert experiments(second) == {"run-r1": commit}
    worktree = tmp_path / "worktree"
    git(second, "worktree", "add", "-q", "--detach", str(worktree), commit)
    restored = versions.restore(worktree, {out.path: out.md5 for out in version.parts}, second)
    assert restored.hash == version.hash and (worktree / REPLAY / "1.txt").read_text() == "dreams"
    assert remote_to_push_to(worktree) == "local", "the restored checkout pushes nothing to the team"
    assert git(second, "status", "--porcelain") == ""


def test_a_shared_cache_of_the_second_clone_is_enough(saved_run, tmp_path):
    place, version, commit = saved_run
    second = tmp_path / "second"
    worktree = tmp_path / "worktree"
    git(tmp_path, "clone", "-q", str(place), str(second))
    shared = shutil.copytree(
        place / ".dvc" / "cache", tmp_path / "shared cache"
    )  # DVC's own config commands accept only ASCII paths
    dvc(second, "cache", "dir", "--local", str(shared))
    git(second, "fetch", "-q", "origin", "refs/exps/*:refs/exps/*")
    git(second, "worktree", "add", "-q", "--detach", str(worktree), commit)
    assert (
        versions.restore(worktree, {out.path: out.md5 for out in version.parts}, second).files
        == version.files
    )


def test_a_version_that_no_remote_has_is_refused_with_advice_and_nothing_is_deleted(saved_run, tmp_path):
    place, version, _ = saved_run
    second = tmp_path / "second"
    git(tmp_path, "clone", "-q", str(place), str(second))
    with pytest.raises(DataError, match=r"dvc push.*dvc remote add -d team") as caught:
        versions.outs_of(second, {out.path: out.md5 for out in version.parts})
    assert "rm " not in str(caught.value)
