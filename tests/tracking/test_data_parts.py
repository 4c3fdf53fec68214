"""Differences in data/ between the starts of two runs, with listings in DVC's cache and without."""

from __future__ import annotations

import json

import pytest
from test_manifest import make_manifest, repository  # noqa: F401

from components.tracking.lineage import lineage
from components.tracking.manifest import StageEntry
from components.tracking.run_differences import differences
from components.trajectories.dvc.dvc_cache import cache_directory, listing_hash, object_path

TRAIN, OTHER, HELD_OUT = "1" * 32, "2" * 32, "3" * 32
LOG = "data/alfworld/trajectories"
SETTINGS = "data/alfworld/settings.json"
BACKBONE = "data/alfworld/backbone"


@pytest.fixture
def root(repository):  # noqa: F811
    (repository / ".dvc").mkdir()
    (repository / ".dvc" / "config").write_text("[core]\n    analytics = false\n")
    return repository


def directory(root, **files):
    """Put the listing of a directory with these files into the cache, and return its hash."""
    named = {name.replace("__", "/").replace("_", "."): md5 for name, md5 in files.items()}
    digest = listing_hash(named)
    path = object_path(cache_directory(root), digest)
    path.parent.mkdir(parents=True, exist_ok=True)
    entries = [{"md5": md5, "relpath": name} for name, md5 in sorted(named.items())]
    path.write_text(json.dumps(entries, sort_keys=True))
    return digest


def manifest(root, dvc_in="", **parts):
    run = make_manifest(root)
    run.config = {"environment": {"name": "alfworld"}}
    run.data.dvc_in, run.data.parts_in = dvc_in, parts
    return run


def data_rows(root, first, second):
    return [(row.name, row.first, row.second) for row in differences(first, second, root).get("data", [])]


def test_the_part_and_the_file_that_differ_are_named(root):
    before = directory(root, train_parquet=TRAIN, fidelity_parquet=HELD_OUT)
    after = directory(root, train_parquet=OTHER, fidelity_parquet=HELD_OUT)
    same = {SETTINGS: HELD_OUT}
    first = manifest(root, "in1.dir", **same, **{LOG: before, "data/aaa/tasks": TRAIN})
    second = manifest(root, "in2.dir", **same, **{LOG: after, "data/aaa/tasks": OTHER})
    assert data_rows(root, first, second) == [
        ("dvc_in", "in1.dir", "in2.dir"),
        (LOG, before, after),
        (f"{LOG}/train.parquet", TRAIN, OTHER),
        ("data/aaa/tasks", TRAIN, OTHER),
    ], "parts of the runs' environment come first"


def test_a_part_that_one_run_lacks_and_one_of_many_files_are_one_row_each(root):
    many = {f"f{number}": TRAIN for number in range(4)}
    before, after = directory(root, **many), directory(root, **dict.fromkeys(many, OTHER))
    log = directory(root, one_parquet=TRAIN)
    first = manifest(root, "in1.dir", **{BACKBONE: before})
    second = manifest(root, "in2.dir", **{BACKBONE: after, "data/alfworld/replay": log})
    rows = [(BACKBONE, before, after), ("data/alfworld/replay", "-", log)]
    assert data_rows(root, first, second)[1:] == rows


def test_without_the_listings_the_parts_are_named_by_their_hashes(root):
    before, after = f"{TRAIN}.dir", f"{OTHER}.dir"
    first, second = manifest(root, "in1.dir", **{LOG: before}), manifest(root, "in2.dir", **{LOG: after})
    assert data_rows(root, first, second)[1:] == [(LOG, before, after)]


def test_a_version_of_one_part_is_split_where_its_listing_is_cached(root):
    """An older manifest has one hash for all of data/."""
    files = {"alfworld__trajectories__train_parquet": TRAIN, "alfworld__settings_json": HELD_OUT}
    whole = directory(root, **files)
    now = {SETTINGS: HELD_OUT, LOG: directory(root, train_parquet=OTHER)}
    rows = data_rows(root, manifest(root, whole), manifest(root, "in2.dir", **now))
    assert rows[1:] == [(LOG, listing_hash({"train.parquet": TRAIN}), now[LOG])]
    lost = manifest(root, f"{TRAIN}.dir")
    assert data_rows(root, lost, manifest(root, "in2.dir", **now)) == [("dvc_in", f"{TRAIN}.dir", "in2.dir")]


def test_the_lineage_ends_at_trajectories_and_backbones_with_their_own_hashes(root):
    trajectories = directory(root, train_parquet=TRAIN, fidelity_parquet=HELD_OUT)
    qwen, replay = directory(root, weights=OTHER), directory(root, one_parquet=OTHER)
    parts = {LOG: trajectories, BACKBONE: directory(root, weights=TRAIN), "data/backbones/qwen": qwen}
    run = manifest(root, "in.dir", **parts)
    run.config["experience_model"] = {"path": "data/backbones/qwen"}
    run.data.dvc_out, run.data.parts_out = "out.dir", {"data/alfworld/replay": replay}
    names = ("validate", "experience_model", "clone", "synthetic_rl")
    run.stages = [StageEntry(name=name, key=name, seconds=1, reused=False) for name in names]
    (root / "runs" / run.run_id).mkdir(parents=True, exist_ok=True)
    run.save(root / "runs" / run.run_id)
    dreamed = lineage(root / "runs", "synthetic_rl", "")
    assert dreamed.facts["replay buffer"] == f"data/alfworld/replay {replay}"
    model, cloned = dreamed.parents
    assert [(parent.name, parent.key, parent.facts) for parent in model.parents[1:]] == [
        ("backbone", qwen, {"path": "data/backbones/qwen"})
    ]
    assert [(parent.name, parent.key) for parent in cloned.parents[1:]] == [("backbone", parts[BACKBONE])]
    (source,) = model.parents[0].parents
    assert (source.name, source.key) == ("trajectories", trajectories)
    files = {f"{LOG}/fidelity.parquet": HELD_OUT, f"{LOG}/train.parquet": TRAIN}
    assert source.facts.items() >= (files | {"version of data/": "in.dir"}).items()
