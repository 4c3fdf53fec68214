"""Snapshots against real git and real DVC in temporary repositories."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from components.errors import DataError
from components.records import Transition
from components.trajectories import store
from components.trajectories.dvc import push_and_pull, snapshots, versions
from components.trajectories.dvc.experiment_commit import commit_experiment

TRAIN, STEPS = "data/world/tasks/train.txt", "data/world/trajectories/b.txt"


def _git(root: Path, *arguments: str) -> str:
    identity = ["-c", "user.name=T", "-c", "user.email=t@example.org"]
    return subprocess.run(
        ["git", *identity, *arguments], cwd=root, check=True, capture_output=True, text=True
    ).stdout.strip()


@pytest.fixture(scope="module")
def pushed(tmp_path_factory) -> Path:
    """A repository with a snapshot of two files, committed and pushed to the local remote."""
    root = tmp_path_factory.mktemp("pushed")
    _git(root, "init", "-q")
    (root / ".gitignore").write_text("/data/\n/.dreamgym/\n")
    (root / TRAIN).parent.mkdir(parents=True)
    (root / TRAIN).write_text("tasks")
    (root / STEPS).parent.mkdir(parents=True)
    (root / STEPS).write_text("transitions")
    snapshots.snapshot(root)
    snapshots.push(root)
    _git(root, "add", "-A")
    _git(root, "commit", "-qm", "data")
    return root


@pytest.fixture
def repository(pushed, tmp_path) -> Path:
    """A copy of it that a test may change."""
    return Path(shutil.copytree(pushed, tmp_path / "repository"))


def _object(folder: Path, content: str) -> Path:
    return next(
        path for path in folder.rglob("*") if path.is_file() and path.read_bytes() == content.encode()
    )


def _overwrite(path: Path, content: str) -> None:
    path.chmod(0o644)
    path.write_text(content)
    path.chmod(0o444)


def _drop_workspace(root: Path) -> None:
    shutil.rmtree(root / "data")
    shutil.rmtree(root / ".dvc" / "cache")


def test_snapshot_counts_and_the_same_data_has_the_same_hash(repository, tmp_path):
    first = snapshots.snapshot(repository)
    assert (first.files, first.size) == (2, len("tasks") + len("transitions"))
    assert first.hash == snapshots.data_hash(repository)
    again = snapshots.snapshot(repository)
    assert again == first
    (repository / STEPS).write_text("other")
    assert snapshots.snapshot(repository).hash != first.hash


def test_only_the_last_shards_of_a_table_that_grew_are_pushed(repository, monkeypatch):
    """A shard that is full stays as it is; the remote gets the others and the list of files."""
    monkeypatch.setattr(store, "SHARD_ROWS", 100)
    table = repository / "data" / "world" / "trajectories" / "train.parquet"
    remote = repository / ".dreamgym" / "dvc-remote"
    pushed: list[set[str]] = []
    for rows in (250, 450):
        store.write_transitions(
            table,
            (Transition("t0", f"e{row}", 0, f"state {row}", "go", "", 0.0, False) for row in range(rows)),
        )
        snapshots.snapshot(repository)
        snapshots.push(repository)
        pushed.append({path.name for path in remote.rglob("*") if path.is_file()})
    assert len(list(table.iterdir())) == 5
    assert len(pushed[1] - pushed[0]) == 3 + 1
    _drop_workspace(repository)
    snapshots.pull(repository)
    assert len(store.read_transitions(table)) == 450


def test_committed_config_names_no_path_of_this_machine(repository):
    for name in _git(repository, "ls-files").splitlines():
        assert str(Path.home()) not in (repository / name).read_text()
        assert str(repository.parent) not in (repository / name).read_text()
    assert "url = ../seed" in (repository / ".dvc" / "config").read_text()


@pytest.mark.parametrize("has_default", [False, True])
def test_a_folder_that_the_user_put_under_dvc_can_be_pushed(tmp_path, has_default):
    """`dvc init` configures no remote. A default remote of the user receives the push."""
    subprocess.run(["git", "init", "-q", str(tmp_path)], check=True)
    for command in (["init", "-q"], ["remote", "add", "-d", "mine", str(tmp_path / "store")])[
        : 1 + has_default
    ]:
        subprocess.run([sys.executable, "-m", "dvc", *command], cwd=tmp_path, check=True)
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "a.txt").write_text("a transition")
    snapshots.snapshot(tmp_path)
    snapshots.push(tmp_path)
    assert "/data/" in (tmp_path / ".gitignore").read_text() and not list(
        (tmp_path / "data").rglob(".gitignore")
    )
    used = [place for place in (tmp_path / "store", tmp_path / ".dreamgym" / "dvc-remote") if place.is_dir()]
    assert used == [tmp_path / "store" if has_default else tmp_path / ".dreamgym" / "dvc-remote"]
    assert _object(used[0], "a transition").is_file()


def test_configure_remotes_keeps_another_default(repository):
    config = repository / ".dvc" / "config"
    config.write_text(
        config.read_text().replace("remote = seed", "remote = store")
        + "['remote \"store\"']\n    url = s3://bucket/data\n"
    )
    snapshots.configure_remotes(repository)
    assert "remote = store" in config.read_text() and "s3://bucket/data" in config.read_text()


def test_pull_restores_from_the_local_remote(repository):
    _drop_workspace(repository)
    assert snapshots.pull(repository).files == 2
    assert (repository / TRAIN).read_text() == "tasks"


def test_a_fresh_clone_pulls_from_the_seed(repository, tmp_path):
    snapshots.push(repository, snapshots.SEED)
    _git(repository, "add", "-A")
    _git(repository, "commit", "-qm", "seed")
    _git(repository, "clone", "-q", str(repository), str(tmp_path / "clone"))
    subprocess.run(
        [sys.executable, "-m", "dvc", "pull", "-q"], cwd=tmp_path / "clone", check=True
    )  # as a user types it
    assert (tmp_path / "clone" / STEPS).read_text() == "transitions"
    _drop_workspace(tmp_path / "clone")
    assert snapshots.pull(tmp_path / "clone").files == 2


def test_the_seed_refuses_more_than_its_limit(repository, monkeypatch):
    monkeypatch.setattr(push_and_pull, "SEED_LIMIT_BYTES", 10)
    with pytest.raises(DataError, match="16 bytes: too many for the seed.*at most 10"):
        snapshots.push(repository, snapshots.SEED)


def test_a_damaged_cache_object_is_reported_although_dvc_reports_nothing(repository):
    shutil.rmtree(repository / "data")
    _overwrite(_object(repository / ".dvc" / "cache", "transitions"), "transitionz")
    with pytest.raises(
        DataError, match=r"data/world/trajectories/b.txt is damaged, because its cache object .* Type `rm -f"
    ) as caught:
        snapshots.pull(repository)
    commands = caught.value.next_step.split("`")
    subprocess.run(commands[1], shell=True, check=True)
    assert commands[3] == "dreamgym data pull"
    snapshots.pull(repository)
    assert (repository / STEPS).read_text() == "transitions"


def test_a_damaged_listing_is_named(repository):
    _overwrite(next((repository / ".dvc" / "cache").rglob("*.dir")), "[]")
    with pytest.raises(DataError, match=r"The listing .*\.dir of the snapshot .* is damaged"):
        snapshots.verify(repository)


@pytest.mark.parametrize("relative", ["../escaped.txt", "{outside}/escaped.txt", "tasks/../../escaped.txt"])
def test_a_snapshot_that_names_a_file_outside_is_refused_before_anything_is_written(
    repository, tmp_path, relative
):
    """DVC itself would write the file there."""
    cache, outside = repository / ".dvc" / "cache" / "files" / "md5", tmp_path / "outside"
    relative = relative.format(outside=outside)
    listing = json.dumps([{"md5": hashlib.md5(b"transitions").hexdigest(), "relpath": relative}]).encode()
    digest = hashlib.md5(listing).hexdigest()
    (cache / digest[:2]).mkdir(exist_ok=True)
    (cache / digest[:2] / f"{digest[2:]}.dir").write_bytes(listing)
    pointer = (repository / "data.dvc").read_text()
    tasks = snapshots.part_hash(repository, "world/tasks")
    (repository / "data.dvc").write_text(pointer.replace(tasks, f"{digest}.dir"))
    shutil.rmtree(repository / "data")
    with pytest.raises(
        DataError, match=f"names the file '{relative}'.*Expected a path below data/.*git checkout data.dvc"
    ):
        snapshots.pull(repository)
    assert (
        not (repository / "data").exists()
        and not outside.exists()
        and not list(repository.glob("escaped.txt"))
    )


def test_a_damaged_remote_object_is_not_used(repository):
    _drop_workspace(repository)
    _overwrite(_object(repository / ".dreamgym", "transitions"), "transitionz")
    with pytest.raises(DataError, match="missing"):
        snapshots.pull(repository)
    assert not (repository / STEPS).exists()


def test_a_missing_remote_object_is_an_error_although_dvc_reports_nothing(repository):
    _drop_workspace(repository)
    shutil.rmtree(repository / ".dreamgym")
    words = (
        r"2 objects of the version that data.dvc names are missing: \w+.*Tried seed .*local.*dvc remote "
        r"add -d"
    )
    with pytest.raises(DataError, match=words):
        snapshots.pull(repository)


def test_a_changed_and_a_missing_file_are_named(repository):
    snapshots.verify(repository)
    (repository / STEPS).write_text("edited")
    with pytest.raises(
        DataError,
        match=r"trajectories/b.txt was changed after its snapshot.*dreamgym data save.*dvc checkout --force",
    ):
        snapshots.verify(repository)
    (repository / STEPS).unlink()
    with pytest.raises(DataError, match=r"trajectories/b.txt is missing"):
        snapshots.verify(repository)


def test_pull_does_not_destroy_unversioned_changes(repository):
    outside = repository / "data" / "mine" / "new.txt"
    within = repository / STEPS.replace("b.txt", "new.txt")
    outside.parent.mkdir()
    outside.write_text("mine")
    (repository / STEPS).unlink()
    snapshots.pull(repository)
    assert outside.read_text() == "mine" and (repository / STEPS).read_text() == "transitions", (
        "a file in no part is not changed"
    )
    within.write_text("mine too")
    (repository / STEPS).unlink()
    with pytest.raises(
        DataError, match="checkout data.dvc. failed: Can't remove .* unsaved files .*/trajectories/new.txt"
    ):
        snapshots.pull(repository)
    assert within.read_text() == "mine too"


@pytest.fixture
def moved_on(repository):
    """(repository with a newer snapshot, worktree of its first commit, parts of the first snapshot)."""
    first = snapshots.data_parts(repository)
    (repository / STEPS).write_text("more transitions")
    snapshots.snapshot(repository)
    snapshots.push(repository)
    worktree = repository / ".dreamgym" / "worktree"
    _git(repository, "worktree", "add", "-q", "--detach", str(worktree), "HEAD")
    return repository, worktree, first


@pytest.mark.parametrize("is_cache_empty", [False, True])
def test_an_earlier_version_is_restored_in_a_worktree_and_the_clone_is_unchanged(moved_on, is_cache_empty):
    repository, worktree, first = moved_on
    if is_cache_empty:
        shutil.rmtree(repository / ".dvc" / "cache")
    restored = versions.restore(worktree, first, repository)
    assert {out.path: out.md5 for out in restored.parts} == first
    assert (restored.files, restored.size) == (2, len("tasks") + len("transitions"))
    assert (worktree / STEPS).read_text() == "transitions"
    assert (repository / STEPS).read_text() == "more transitions" and snapshots.data_parts(
        repository
    ) != first


def test_a_damaged_object_of_an_earlier_version_is_named_and_not_used(moved_on):
    repository, worktree, first = moved_on
    damaged = _object(repository / ".dvc" / "cache", "transitions")
    _overwrite(damaged, "trnasitions")
    with pytest.raises(DataError, match=f"damaged, because its cache object .*{damaged.name}"):
        versions.restore(worktree, first, repository)


def test_a_version_that_no_remote_has_is_refused(moved_on):
    repository, worktree, first = moved_on
    with pytest.raises(DataError, match="missing: 0{32}"):
        versions.restore(worktree, first | {"data/other": "0" * 32 + ".dir"}, repository)


def test_no_git_repository_no_data_and_no_pointer(tmp_path):
    with pytest.raises(DataError, match="not a git repository.*git init"):
        snapshots.snapshot(tmp_path)
    _git(tmp_path, "init", "-q")
    with pytest.raises(DataError, match="holds no files.*dreamgym collect"):
        snapshots.snapshot(tmp_path)
    with pytest.raises(DataError, match="There is no .*data.dvc"):
        snapshots.data_hash(tmp_path)
    entries = (
        "[]",
        "\n- {md5: %s, size: 1, path: ../x}" % ("0" * 32),
        "\n- {md5: null, nfiles: 1, size: 1}",
        "\n- {md5: 12, nfiles: 1}",
    )
    for text in (f"outs: {entry}\n" for entry in entries):
        (tmp_path / "data.dvc").write_text(text)
        with pytest.raises(DataError, match="does not name a version.*git checkout data.dvc"):
            snapshots.data_hash(tmp_path)
    with pytest.raises(DataError, match="no git commit to base an experiment on.*git commit"):
        commit_experiment(tmp_path, "run-1", {})


def test_tree_hash_depends_only_on_contents_and_names(tmp_path):
    for name in ("one", "two"):
        (tmp_path / name / "inner").mkdir(parents=True)
        (tmp_path / name / "inner" / "a.py").write_text("a = 1\n")
    os.utime(tmp_path / "two" / "inner" / "a.py", (1, 1))
    (tmp_path / "two" / "__pycache__").mkdir()
    (tmp_path / "two" / "__pycache__" / "a.pyc").write_bytes(b"x")
    first = snapshots.tree_hash(tmp_path / "one")
    assert snapshots.tree_hash(tmp_path / "two") == first
    (tmp_path / "two" / "inner" / "a.py").rename(tmp_path / "two" / "inner" / "b.py")
    assert snapshots.tree_hash(tmp_path / "two") != first
    assert snapshots.tree_hash(tmp_path / "one" / "inner" / "a.py") != first
    with pytest.raises(DataError, match="There is no"):
        snapshots.tree_hash(tmp_path / "three")
