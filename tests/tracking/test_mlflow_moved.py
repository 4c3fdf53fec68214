"""A moved or copied clone: its local MLflow store works in the new place, and a copy never changes the
original.
"""

from __future__ import annotations

import shutil
import sqlite3
from pathlib import Path

import mlflow.artifacts
import pytest

from components.config import TrackingConfig
from components.errors import TrackingError
from components.tracking.mlflow_adapter.mlflow_uri import exclusive_store_access, resolve_uri
from components.tracking.mlflow_adapter.moved_store import rewrite_artifact_locations
from components.tracking.mlflow_adapter.tracker import Tracker
from components.tracking.stage_store.hashes import tree_hash

ODD = "é 100%41 #1 +x"
"""A directory name that a URI must quote."""


@pytest.fixture(scope="module")
def tables(tmp_path_factory):
    """A database with MLflow's empty tables, which take seconds to create."""
    file = tmp_path_factory.mktemp("tables") / "mlflow.db"
    with exclusive_store_access(f"sqlite:///{file}"):
        return file


@pytest.fixture(autouse=True)
def _local_store(monkeypatch, tables, tmp_path):
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    monkeypatch.setattr(
        "components.tracking.mlflow_adapter.mlflow_uri._make_tables",
        lambda file: shutil.copyfile(tables, file),
    )


def make_model(directory: Path, text: str) -> Path:
    directory.mkdir(parents=True)
    (directory / "weights.bin").write_text(text)
    return directory


def make_clone(root: Path) -> str:
    """Create a store with a champion and an artifact of a run; return the id of the run."""
    tracker = Tracker(TrackingConfig(), root)
    run = tracker.start_run("retrain")
    version = tracker.register_model(run, "policy", make_model(root / "stage", "first"))
    tracker.set_alias("policy", "champion", version)
    tracker.log_artifact(run, root / "stage" / "weights.bin")
    tracker.finish(run)
    return run


def retrain(root: Path, text: str, place: str) -> None:
    """Do what a later run does: read the champion, register another policy, read that one, store a file."""
    tracker = Tracker(TrackingConfig(), root)
    assert (
        tracker.download("policy", tracker.alias("policy", "champion") or "", root / place) / "weights.bin"
    ).read_text() == "first"
    run = tracker.start_run("retrain")
    version = tracker.register_model(run, "policy", make_model(root / f"stage-{place}", text))
    assert (tracker.download("policy", version, root / f"{place}-new") / "weights.bin").read_text() == text
    tracker.log_artifact(run, root / f"stage-{place}" / "weights.bin")
    tracker.finish(run)


def locations(root: Path) -> set[str]:
    """All artifact locations in the database."""
    queries = [
        *("artifact_location FROM experiments WHERE name <> 'Default'", "artifact_uri FROM runs"),
        *(
            "artifact_location FROM logged_models",
            "source FROM model_versions",
            "storage_location FROM model_versions",
        ),
    ]
    with sqlite3.connect(root / "mlflow" / "mlflow.db") as connection:
        return {row[0] for query in queries for row in connection.execute(f"SELECT {query}")}


@pytest.mark.parametrize("name", ["moved", ODD])
def test_a_moved_clone_reads_and_registers_models_at_its_new_place(tmp_path, name):
    run = make_clone(tmp_path / "first")
    (tmp_path / "first").rename(tmp_path / name)
    retrain(tmp_path / name, "second", "champion")
    assert not (tmp_path / "first").exists(), "nothing is written to the old place"
    assert all(location.startswith((tmp_path / name).as_uri()) for location in locations(tmp_path / name))
    uri = resolve_uri(TrackingConfig(), tmp_path / name)
    assert (
        Path(
            mlflow.artifacts.download_artifacts(run_id=run, tracking_uri=uri, artifact_path="weights.bin")
        ).read_text()
        == "first"
    )


def test_a_clone_under_an_odd_path_works_and_moves_back(tmp_path):
    make_clone(tmp_path / ODD)
    retrain(tmp_path / ODD, "second", "champion")
    (tmp_path / ODD).rename(tmp_path / "plain")
    retrain(tmp_path / "plain", "third", "again")


def test_a_copy_does_not_change_the_original(tmp_path):
    make_clone(tmp_path / "first")
    shutil.copytree(tmp_path / "first", tmp_path / "copy")
    before = tree_hash(tmp_path / "first")
    retrain(tmp_path / "copy", "second", "champion")
    assert tree_hash(tmp_path / "first") == before
    shutil.rmtree(tmp_path / "first")
    retrain(tmp_path / "copy", "third", "again")


def test_a_copy_without_the_artifacts_reads_them_from_the_original_and_writes_its_own(tmp_path):
    make_clone(tmp_path / "first")
    shutil.copytree(tmp_path / "first", tmp_path / "copy", ignore=shutil.ignore_patterns("artifacts"))
    before = tree_hash(tmp_path / "first")
    retrain(tmp_path / "copy", "second", "champion")
    assert tree_hash(tmp_path / "first") == before


def test_artifacts_in_another_place_keep_their_location(tmp_path):
    """A clone that an earlier version let record in another clone's store has its artifacts in itself."""
    make_clone(tmp_path / "store")
    away = make_model(tmp_path / "other" / "mlflow" / "artifacts", "kept").as_uri()
    with sqlite3.connect(tmp_path / "store" / "mlflow" / "mlflow.db") as connection:
        connection.execute(
            "INSERT INTO experiments (name, artifact_location, lifecycle_stage) VALUES ('own', ?, 'active')",
            (away,),
        )
        connection.execute(
            "INSERT INTO runs (run_uuid, experiment_id, artifact_uri) VALUES ('r1', 99, ?)",
            (f"{away}/weights.bin",),
        )
    assert rewrite_artifact_locations(tmp_path / "store" / "mlflow" / "mlflow.db", tmp_path / "store") == 0
    assert away in locations(tmp_path / "store")


def test_a_clone_moved_before_its_first_artifact_stores_it_in_the_new_place(tmp_path):
    tracker = Tracker(TrackingConfig(), tmp_path / "first")
    tracker.finish(tracker.start_run("failed"), "FAILED")
    (tmp_path / "first").rename(tmp_path / "moved")
    make_clone(tmp_path / "moved")
    assert not (tmp_path / "first").exists()


def test_missing_artifacts_are_reported_when_the_store_is_opened(tmp_path):
    make_clone(tmp_path / "first")
    missing = (tmp_path / "disk" / "big" / "artifacts").as_uri()
    with sqlite3.connect(tmp_path / "first" / "mlflow" / "mlflow.db") as connection:
        connection.execute("UPDATE experiments SET artifact_location = ? WHERE name = 'dreamgym'", (missing,))
    with pytest.raises(TrackingError, match="disk/big/artifacts, which does not exist.*ln -s"):
        Tracker(TrackingConfig(), tmp_path / "first")


def test_a_question_mark_in_the_path_is_refused_with_advice(tmp_path):
    with pytest.raises(TrackingError, match="question mark.*Rename the directory"):
        Tracker(TrackingConfig(), tmp_path / "why?")
