"""Outputs of a stage are loaded by run and stage, and verified by their hashes."""

from __future__ import annotations

import math
import shutil

import pytest
from workplace import METRIC, directory_of, make_run

from components.errors import DataError
from components.tracking.stage_store.loading import load_stage, path_of


@pytest.fixture
def manifest(tmp_path):
    """The newer of two runs, with two stages."""
    make_run(tmp_path, 1, "clone")
    return make_run(tmp_path, 2, "clone", "evaluate")


def test_paths_metrics_and_curves_of_a_stage_by_id_and_as_latest(tmp_path, manifest):
    for run in ("latest", manifest.run_id):
        loaded = load_stage(run, "evaluate", tmp_path)
        assert (loaded.run, loaded.stage, loaded.seconds, loaded.reused) == (
            manifest.run_id,
            "evaluate",
            2.5,
            False,
        )
        assert (loaded.paths["policy"] / "weights").read_text() == manifest.run_id * 100
        assert loaded.metrics == {"evaluate/win": METRIC}
        first, second, third = loaded.curves["evaluate/loss"]
        assert (first, third) == (1.0, 0.25) and math.isnan(second)
        assert path_of(loaded, "policy") == directory_of(tmp_path, manifest, "evaluate") / "policy"


def test_a_missing_name_is_refused_with_the_existing_names(tmp_path, manifest):
    with pytest.raises(DataError, match="no finished stage 'evalute'.*evaluate.*nearest name is evaluate"):
        load_stage("latest", "evalute", tmp_path)
    with pytest.raises(DataError, match="no run 'x'"):
        load_stage("x", "evaluate", tmp_path)
    with pytest.raises(DataError, match="no output 'model'.*policy"):
        path_of(load_stage("latest", "clone", tmp_path), "model")


def test_a_damaged_file_and_a_removed_stage_are_refused(tmp_path, manifest):
    place = directory_of(tmp_path, manifest, "clone")
    (place / "policy" / "weights").write_text("other")
    with pytest.raises(DataError, match="is damaged.*policy.*dreamgym reproduce"):
        load_stage("latest", "clone", tmp_path)
    shutil.rmtree(place)
    with pytest.raises(DataError, match=f"no longer exist.*dreamgym reproduce {manifest.run_id}"):
        load_stage("latest", "clone", tmp_path)
