"""The stage store on a real disk: keys, reuse, damage, crashes and concurrent processes."""

import errno
import multiprocessing
import re
import sys
from pathlib import Path

import pytest

from components import files as atomic
from components.config import load_config
from components.environments import adapter_modules
from components.errors import DataError, TrackingError
from components.tracking.stage_store.hashes import code_hash, file_hash, tree_hash, with_imports
from components.tracking.stage_store.stage_store import StageStore

METRICS = {"loss": {"value": 0.5, "n": 10, "low": 0.4, "high": 0.6}}


@pytest.fixture
def store(tmp_path):
    return StageStore(tmp_path / "stages")


def make(store, key, text="weights", name="train", **options):
    """Run and commit a stage."""
    work = store.begin(name, key)
    (work / "model").mkdir(exist_ok=True)
    (work / "model" / "weights.txt").write_text(text)
    (work / "log.txt").write_text("fine")
    arguments = {
        "metrics": METRICS,
        "outputs": {"model": "model", "log": "log.txt"},
        "seconds": 1.5,
        "details": {"steps": 3},
        **options,
    }
    return store.commit(name, key, **arguments)


def key_of(store, **changes):
    parts = {
        "name": "train",
        "inputs": {"data": "abc"},
        "config": {"lr": 0.1, "deep": {"a": [1]}},
        "code": ["components.errors"],
    }
    return store.key(**{**parts, **changes})


def test_the_key_depends_on_each_part_and_nothing_else(store, tmp_path):
    key = key_of(store)
    assert len(key) == 64
    assert key == key_of(StageStore(tmp_path / "elsewhere"), config={"deep": {"a": [1]}, "lr": 0.1})
    changed = [
        key_of(store, name="other"),
        key_of(store, inputs={"data": "abd"}),
        key_of(store, config={"lr": 0.2, "deep": {"a": [1]}}),
        key_of(store, code=["components.records"]),
    ]
    assert len({key, *changed}) == 5


def test_a_committed_result_is_found_with_all_its_values(store):
    key = key_of(store)
    assert store.find("train", key) is None
    committed = make(store, key)
    found = StageStore(store.root).find("train", key)
    assert not committed.reused
    assert found.reused
    assert found.metrics == METRICS
    assert found.outputs["model"] == store.root / f"train-{key[:12]}" / "model"
    assert (found.outputs["model"] / "weights.txt").read_text() == "weights"
    assert found.output_hashes == {
        "model": tree_hash(found.outputs["model"]),
        "log": file_hash(found.outputs["log"]),
    }
    assert (found.seconds, found.details) == (1.5, {"steps": 3})
    assert not list(store.root.glob("*.partial"))


@pytest.mark.parametrize(
    ("damage", "words"),
    [
        (lambda d: (d / "model" / "weights.txt").write_text("WEIGHTS"), "model .* has the hash"),
        (lambda d: (d / "model" / "more.txt").write_text(""), "model .* has the hash"),
        (lambda d: (d / "log.txt").unlink(), "log is missing"),
        (lambda d: (d / "stage.json").write_text('{"name": "tr'), "damaged"),
        (lambda d: (d / "stage.json").write_text("[]"), "damaged"),
        (lambda d: (d / "stage.json").unlink(), "damaged"),
    ],
)
def test_a_damaged_result_is_reported_and_renamed_and_not_reused(store, caplog, damage, words):
    key = key_of(store)
    directory = make(store, key).directory
    damage(directory)
    result, reason = store.look_up("train", key)
    assert result is None
    assert re.search(words, reason)
    assert store.find("train", key) is None
    assert "will be made again" in caplog.text
    assert not make(store, key, text="new").reused
    assert store.find("train", key).outputs["model"].joinpath("weights.txt").read_text() == "new"
    assert directory.with_name(directory.name + ".damaged-1").is_dir()


def test_a_crashed_stage_finds_its_checkpoint(store):
    key = key_of(store)
    process = multiprocessing.get_context("spawn").Process(target=_crash, args=(store.root, key))
    process.start()
    process.join()
    assert process.exitcode == 7
    assert store.find("train", key) is None
    work = store.begin("train", key)
    assert (work / "checkpoint").read_text() == "step 40"
    assert store.begin("train", key) == work


def _crash(root: Path, key: str) -> None:
    import os

    (StageStore(root).begin("train", key) / "checkpoint").write_text("step 40")
    os._exit(7)


def test_the_second_of_two_processes_uses_the_result_of_the_first(store):
    key = key_of(store)
    context = multiprocessing.get_context("spawn")
    begun, go, answers = context.Event(), context.Event(), context.Queue()
    other = context.Process(target=_second, args=(store.root, key, begun, go, answers))
    ours = store.begin("train", key)
    other.start()
    assert begun.wait(60)
    assert (ours / "model").exists() is False
    make(store, key, text="first")
    go.set()
    reused, text = answers.get(timeout=60)
    other.join()
    assert (reused, text) == (True, "first")
    assert not list(store.root.glob("*.partial"))
    assert store.find("train", key).outputs["model"].joinpath("weights.txt").read_text() == "first"


def _second(root, key, begun, go, answers):
    store = StageStore(root)
    store.begin("train", key)
    begun.set()
    go.wait(60)
    result = make(store, key, text="second")
    answers.put((result.reused, (result.outputs["model"] / "weights.txt").read_text()))


def test_a_full_disk_is_a_data_error_and_no_file_is_lost(store, monkeypatch):
    old = make(store, key_of(store))
    key = key_of(store, inputs={"data": "new"})

    def full(descriptor):
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(atomic.os, "fsync", full)
        with pytest.raises(DataError, match="disk is full.*Free some space"):
            make(store, key)
    assert store.find("train", key) is None
    assert store.find("train", old.key) is not None
    assert (store.begin("train", key) / "log.txt").exists()
    assert not make(store, key).reused


def test_outputs_must_exist_inside_the_work_directory(store, tmp_path):
    (tmp_path / "secret").write_text("x")
    with pytest.raises(DataError, match="output model is missing"):
        make(store, key_of(store), outputs={"model": "nowhere"})
    with pytest.raises(DataError, match="Expected a path relative to"):
        make(store, key_of(store), outputs={"model": "../../secret"})


def test_wrong_use_is_refused_with_a_message(store):
    with pytest.raises(TrackingError, match="Expected exactly value, n, low, high"):
        make(store, key_of(store), metrics={"loss": {"value": 1.0}})
    with pytest.raises(TrackingError, match="has no work directory"):
        store.commit("other", key_of(store), metrics={}, outputs={}, seconds=0)
    with pytest.raises(TrackingError, match="No stage can be called"):
        store.begin("../x", key_of(store))
    with pytest.raises(TrackingError, match="no module 'components.nowhere.at_all'"):
        key_of(store, code=["components.nowhere.at_all"])
    with pytest.raises(ValueError, match="JSON"):
        key_of(store, config={"lr": float("nan")})


def test_code_hash_follows_the_source_and_ignores_caches(tmp_path, monkeypatch):
    package = tmp_path / "dreamt_package"
    package.mkdir()
    (package / "__init__.py").write_text("raise RuntimeError('not run')")
    (package / "a.py").write_text("x = 1")
    monkeypatch.syspath_prepend(tmp_path)
    before = code_hash(["dreamt_package"])
    (package / "__pycache__").mkdir()
    (package / "__pycache__" / "a.pyc").write_text("cache")
    assert code_hash(["dreamt_package"]) == before
    (package / "a.py").write_text("x = 2")
    assert code_hash(["dreamt_package"]) != before
    assert "dreamt_package" not in sys.modules


def test_the_code_of_a_stage_is_what_its_module_imports_directly_or_not():
    found = with_imports(["flows.stages.synthetic_rl"], ["components.tracking", "flows.run.pipeline_run"])
    assert {
        "components.policy.rl.loop",
        "components.language.vocabulary.markers",
        "components.evaluation.dream_watch",
        "flows.run.training.rl_training",
        "components.language.threads",
    } <= set(found)
    assert not any(
        name.startswith("components.tracking") or name == "flows.run.pipeline_run" for name in found
    )
    assert all(name.split(".")[0] in ("components", "flows") for name in found)


@pytest.mark.parametrize("selected", ["alfworld", "webshop", "browser"])
def test_only_the_selected_environment_belongs_to_the_code_of_a_stage(selected):
    """An edit of the browser's behaviours does not invalidate ALFWorld's models."""
    config = load_config(None, [f"environment.name={selected}"])
    code = ["flows.stages.experience_model", *adapter_modules(config.environment)]
    found = {name.split(".")[2] for name in with_imports(code) if name.startswith("components.environments.")}
    assert f"components.environments.{selected}.behaviours" in with_imports(code)
    assert found & {"alfworld", "webshop", "browser", "gymnasium", "openenv"} == {selected}


def test_docstrings_comments_and_layout_do_not_change_the_hash_of_code(tmp_path, monkeypatch):
    module = tmp_path / "dreamt_words.py"
    monkeypatch.syspath_prepend(tmp_path)
    hashes = []
    for text in ('"""A."""\nX = 1\n', '"""B."""\n\n# why\nX = (1)\n"""Of X."""\n', "X = 2\n"):
        module.write_text(text)
        hashes.append(code_hash(["dreamt_words"]))
    assert hashes[0] == hashes[1] != hashes[2]


def test_tree_hash_depends_on_names_and_content_but_not_on_the_path(tmp_path):
    for folder in ("one", "two"):
        (tmp_path / folder / "sub").mkdir(parents=True)
        (tmp_path / folder / "a").write_text("1")
        (tmp_path / folder / "sub" / "b").write_text("2")
    assert tree_hash(tmp_path / "one") == tree_hash(tmp_path / "two")
    (tmp_path / "two" / "card").write_text("of today")
    assert tree_hash(tmp_path / "one") != tree_hash(tmp_path / "two")
    assert tree_hash(tmp_path / "one") == tree_hash(tmp_path / "two", leave_out=["card"])
    (tmp_path / "two" / "card").unlink()
    (tmp_path / "two" / "a").rename(tmp_path / "two" / "c")
    assert tree_hash(tmp_path / "one") != tree_hash(tmp_path / "two")
    with pytest.raises(DataError, match="cannot be read"):
        tree_hash(tmp_path / "three")
