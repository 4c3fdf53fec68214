"""Before anything starts, missing data is pulled, and unsaved changes are refused."""

from __future__ import annotations

import shutil
import subprocess
import sys

import pytest

from components.config import load_config
from components.errors import DataError
from components.trajectories.dvc import snapshots
from flows.checks.doctor import check_data
from flows.checks.preflight import complete_data, ensure_data, missing_data, require_disk_space
from flows.jobs.score import score_policies
from flows.run.pipeline_run import Run


def _fill(root, *names):
    for name in names:
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(name)


@pytest.fixture(scope="module")
def versioned(tmp_path_factory):
    """A repository whose snapshot has all that a run reads, pushed, with nothing of it in place: a fresh
    clone.
    """
    root = tmp_path_factory.mktemp("versioned")
    subprocess.run(["git", "init", "-q", str(root)], check=True)
    _fill(
        root, *missing_data(root, load_config(), backbone=False), "data/alfworld/backbone/model.safetensors"
    )
    snapshots.snapshot(root)
    snapshots.push(root)
    shutil.rmtree(root / "data")
    shutil.rmtree(root / ".dvc" / "cache")
    return root


@pytest.fixture
def fresh(versioned, tmp_path):
    """A copy of it that a test may change."""
    return shutil.copytree(versioned, tmp_path / "fresh")


def test_a_full_disk_is_named_before_prefect_starts(tmp_path, monkeypatch):
    require_disk_space(tmp_path)
    monkeypatch.setenv("PREFECT_HOME", "/proc")  # a file system that never has a byte free
    with pytest.raises(DataError, match="The disk is full: 0 bytes are free in /proc.*Free some space"):
        require_disk_space(tmp_path)


def test_missing_data_is_pulled_and_reported(fresh):
    said = []
    ensure_data(fresh, load_config(), said.append)
    assert not missing_data(fresh, load_config())
    assert "data/alfworld/tasks/train.parquet" in said[0] and "Pulled 6 files" in said[1]


def test_a_snapshot_without_the_backbone_is_refused_by_name(fresh):
    ensure_data(fresh, load_config(), lambda _: None)
    shutil.rmtree(fresh / "data" / "alfworld" / "backbone")
    snapshots.snapshot(fresh)
    with pytest.raises(DataError, match="data.dvc names has no data/alfworld/backbone.*dreamgym pretrain"):
        ensure_data(fresh, load_config(), lambda _: None)
    ensure_data(fresh, load_config(), lambda _: None, backbone=False)
    with pytest.raises(
        DataError,
        match="no data/webshop/tasks.*Type `dreamgym collect` and `dreamgym pretrain` with the same --config",
    ):
        ensure_data(fresh, load_config(None, ["environment.name=webshop"]), lambda _: None)
    rung = check_data(load_config(), fresh)
    assert (
        rung.state == "wrong"
        and "has no data/alfworld/backbone" in rung.found
        and "dreamgym pretrain" in rung.next_step
    )


def test_data_without_a_pointer_is_refused_before_the_run_leaves_anything(fresh):
    ensure_data(fresh, load_config(), lambda _: None)
    (fresh / "data.dvc").unlink()
    ensure_data(fresh, load_config(), pytest.fail, versioned=False)
    with pytest.raises(DataError, match="There is no .*data.dvc.*git checkout data.dvc"):
        ensure_data(fresh, load_config(), pytest.fail)
    with pytest.raises(DataError, match=r"There is no .*data.dvc"):
        Run(load_config(), fresh).start("retrain")
    assert not (fresh / "runs").exists()
    with pytest.raises(DataError, match=r"There is no .*data.dvc"):
        score_policies.fn(load_config(), fresh, "no policy: data.dvc is looked at first")


def test_new_data_in_a_fresh_clone_keeps_the_old_backbone(fresh):
    assert snapshots.missing_files(fresh) == [
        f"data/alfworld/{part}" for part in ("backbone", "tasks", "trajectories")
    ]
    assert "dreamgym data pull" in check_data(load_config(), fresh).next_step
    complete_data(fresh, lambda _: None)
    _fill(fresh, "data/alfworld/tasks/train.parquet", "data/alfworld/tasks/another.parquet")
    assert snapshots.snapshot(fresh).files == 7
    (fresh / "data" / "alfworld" / "backbone" / "model.safetensors").unlink()
    assert snapshots.missing_files(fresh) == ["data/alfworld/backbone/model.safetensors"]
    complete_data(fresh, lambda _: None)
    assert (
        fresh / "data" / "alfworld" / "backbone" / "model.safetensors"
    ).read_text() == "data/alfworld/backbone/model.safetensors"


TRAIN, DREAMT = "data/alfworld/trajectories/train.parquet", "data/alfworld/replay/00000-synthetic.parquet"


@pytest.fixture(scope="module")
def later(versioned, tmp_path_factory):
    """A clone in which newer trajectories were recorded, versioned and pushed."""
    root = shutil.copytree(versioned, tmp_path_factory.mktemp("colleague") / "later")
    snapshots.pull(root)
    _replace(root, TRAIN, "recorded anew")
    snapshots.snapshot(root)
    snapshots.push(root)
    return root


@pytest.fixture(scope="module")
def dreamt(versioned, tmp_path_factory):
    """A clone with the first version and a later one of its own, with dreams in the replay log."""
    root = shutil.copytree(versioned, tmp_path_factory.mktemp("own") / "dreamt")
    snapshots.pull(root)
    _fill(root, DREAMT)
    snapshots.snapshot(root)
    return root


@pytest.fixture
def pulled(dreamt, later, tmp_path):
    """A copy of it that a test may change, after `git pull`."""
    root = shutil.copytree(dreamt, tmp_path / "clone", symlinks=True)

    def git_pull():
        shutil.copytree(
            later / ".dreamgym" / "dvc-remote", root / ".dreamgym" / "dvc-remote", dirs_exist_ok=True
        )
        shutil.copy(later / "data.dvc", root / "data.dvc")

    return root, git_pull


def _replace(root, name, text):
    """Replace the file, which may be a link into DVC's cache."""
    (root / "other").write_text(text)
    (root / "other").replace(root / name)


def _dvc(root, *arguments):
    subprocess.run([sys.executable, "-m", "dvc", *arguments, "-q"], cwd=root, check=True)


def test_a_version_that_git_pull_brought_is_checked_out_and_the_own_one_is_kept(pulled):
    root, git_pull = pulled
    own, trajectories = snapshots.data_hash(root), snapshots.part_hash(root, "alfworld/trajectories")
    ensure_data(root, load_config(), pytest.fail)
    shutil.copy(root / "data.dvc", root.parent / "own.dvc")
    git_pull()
    rung = check_data(load_config(), root)
    assert rung.state == "doubt" and "another version than the one that data.dvc names" in rung.found
    said = []
    ensure_data(root, load_config(), said.append, versioned=False)
    assert not said and (root / TRAIN).read_text() == TRAIN, "what records no version reads what lies there"
    ensure_data(root, load_config(), said.append)
    assert (
        "which stays in DVC's cache" in said[0]
        and snapshots.data_hash(root) in said[1]
        and "6 files" in said[1]
    )
    assert (root / TRAIN).read_text() == "recorded anew" and not (root / DREAMT).exists()
    assert snapshots.part_hash(root, "alfworld/trajectories") != trajectories, "what `watch-data` looks at"
    shutil.copy(root.parent / "own.dvc", root / "data.dvc")
    ensure_data(root, load_config(), said.append)
    assert (
        snapshots.data_hash(root) == own and (root / DREAMT).is_file() and (root / TRAIN).read_text() == TRAIN
    )


def test_changes_in_no_version_are_refused_with_what_to_type(pulled):
    root, git_pull = pulled
    ensure_data(root, load_config(), pytest.fail)
    _replace(root, TRAIN, "mine")
    words = (
        r"in no version: alfworld/trajectories/train.parquet.*dreamgym data save.*dreamgym data pull --force"
    )
    with pytest.raises(DataError, match=words):
        ensure_data(root, load_config(), pytest.fail)
    _dvc(root, "add", "data")  # one part again: DVC's own way to keep it is as good
    ensure_data(root, load_config(), pytest.fail)
    _replace(root, TRAIN, "mine again")
    git_pull()
    with pytest.raises(DataError, match=words):
        ensure_data(root, load_config(), pytest.fail)
    assert (root / TRAIN).read_text() == "mine again"
    snapshots.pull(root, force=True)
    ensure_data(root, load_config(), pytest.fail)
    assert (root / TRAIN).read_text() == "recorded anew"


def test_files_outside_the_versions_parts_are_kept_and_saved_on_request(pulled):
    """A run writes nothing to data/, but earlier versions left dreams there, and users may add files."""
    root, git_pull = pulled
    _fill(
        root,
        "data/webshop/replay/00001-synthetic.parquet",
        "data/alfworld/.new.tmp/tasks.parquet",
        "data/notes.txt",
    )
    before = snapshots.data_hash(root)
    ensure_data(root, load_config(), pytest.fail)
    complete_data(root, pytest.fail)
    git_pull()
    ensure_data(root, load_config(), lambda _: None)
    assert (root / "data/notes.txt").is_file() and (
        root / "data/webshop/replay/00001-synthetic.parquet"
    ).is_file()
    saved = snapshots.snapshot(root)
    assert saved.hash != before and {"data/notes.txt", "data/webshop/replay"} < {
        out.path for out in saved.parts
    }
    assert not any("new.tmp" in out.path for out in saved.parts)


def test_a_collection_begins_with_the_version_that_git_pull_brought_and_keeps_what_is_in_none(pulled):
    root, git_pull = pulled
    _replace(root, TRAIN, "a collection that was cut short")
    complete_data(root, pytest.fail)
    assert (root / TRAIN).read_text() == "a collection that was cut short"
    _dvc(root, "add", "data")
    git_pull()
    complete_data(root, lambda _: None)
    assert (root / TRAIN).read_text() == "recorded anew"


def test_the_version_of_a_part_is_known_without_the_cache(pulled):
    root, _ = pulled
    parts = ("alfworld/trajectories", ()), ("alfworld", ("replay",))
    told = [snapshots.part_hash(root, *part) for part in parts]
    shutil.copytree(root / "data", root / "whole")
    shutil.rmtree(root / ".dvc" / "cache")
    shutil.rmtree(root / "data")
    (root / "whole").rename(root / "data")
    assert [snapshots.part_hash(root, *part) for part in parts] == told
    ensure_data(root, load_config(), pytest.fail)
    (root / TRAIN).unlink()
    assert snapshots.part_hash(root, *parts[0]) == told[0], "data.dvc names it"
    assert snapshots.part_hash(root, *parts[1]) not in told, "data/ no longer tells the version's files"
    with pytest.raises(
        DataError, match="data/alfworld/trajectories .* not in this clone.*dreamgym data pull"
    ):
        snapshots.data_hash(root)


def test_without_a_pointer_there_is_nothing_to_complete(tmp_path):
    complete_data(tmp_path, pytest.fail)
