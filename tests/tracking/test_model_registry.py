"""Versions of models in the registry of a real SQLite MLflow."""

# ruff: noqa: F811  (fixtures of another module)
from __future__ import annotations

import pytest
from test_mlflow_store import client, model, root, tracker  # noqa: F401  (fixtures)

from components.errors import DataError
from components.tracking.stage_store.hashes import tree_hash


def test_a_linked_version_is_listed_among_the_models_of_the_run(tracker, client, model):
    retrain = tracker.start_run("retrain")
    stage = tracker.start_stage(retrain, "sim_to_real")
    versions = [tracker.register_model(stage, "linked", model) for _ in range(2)]
    for run in (stage, retrain, retrain):
        tracker.link_model(run, "linked", versions[1])
    listed = [
        [output.model_id for output in client.get_run(run).outputs.model_outputs] for run in (stage, retrain)
    ]
    assert listed[0] == listed[1] and len(listed[0]) == 1, "listed once, and the right one of two versions"
    logged_model = client.get_logged_model(listed[0][0])
    assert (
        logged_model.source_run_id == stage
        and logged_model.artifact_location == client.get_model_version("dreamgym-linked", versions[1]).source
    )


def test_a_model_is_registered_with_its_run_and_downloaded_unchanged(tracker, client, model, tmp_path):
    stage = tracker.start_stage(tracker.start_run("retrain"), "synthetic_rl")
    first = tracker.register_model(stage, "policy", model, {"dvc": "d1"})
    (model / "config.json").write_text('{"new": 1}')
    second = tracker.register_model(stage, "policy", model)
    assert (first, second) == ("1", "2")
    assert client.get_model_version("dreamgym-policy", "1").run_id == stage
    assert tracker.version("policy", first)["tags"]["dvc"] == "d1"
    copy = tracker.download("policy", second, tmp_path / "there" / "policy")
    assert tree_hash(copy) == tree_hash(model)
    assert tracker.download("policy", second, copy) == copy
    with pytest.raises(DataError, match="Expected .* dreamgym-policy version 1.*Remove it"):
        tracker.download("policy", first, copy)
    assert [entry.name for entry in copy.parent.iterdir()] == ["policy"]


def test_a_damaged_artifact_store_is_reported(tracker, root, model, tmp_path):
    version = tracker.register_model(tracker.start_run("damage"), "damaged", model)
    for weights in (root / "mlflow" / "artifacts" / "models").glob("*/artifacts/adapter/weights.bin"):
        weights.write_bytes(b"??")
    with pytest.raises(DataError, match="artifact store is damaged"):
        tracker.download("damaged", version, tmp_path / "there")
    assert not (tmp_path / "there").exists()


def test_an_alias_moves_and_may_be_absent(tracker, model):
    run = tracker.start_run("alias")
    versions = [tracker.register_model(run, "champion-test", model) for _ in range(2)]
    assert tracker.alias("champion-test", "champion") is None
    assert tracker.alias("never-made", "champion") is None
    for version in versions:
        tracker.set_alias("champion-test", "champion", version)
        assert tracker.alias("champion-test", "champion") == version
