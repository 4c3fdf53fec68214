"""Changes of a stage's key are explained by its parts, which are stored with the result."""

from __future__ import annotations

import pytest

from components.errors import DataError
from components.tracking.stage_store.stage_keys import KeyChange, key_changes, key_of, key_parts, read_pins
from components.tracking.stage_store.stage_store import StageStore

PARTS = {
    "inputs": {"train": "aa", "policy": "bb"},
    "config": {"cloning": {"epochs": 1, "betas": [1, 2]}, "device": "cpu"},
    "code": ["components.errors", "components.records"],
    "packages": {"torch": "2.13.0"},
    "seed": 3,
}


def parts(**changes):
    return key_parts(**{**PARTS, **changes})


def test_the_same_parts_have_the_same_key_and_no_change():
    assert key_changes(parts(), parts()) == [] and key_of("clone", parts()) == key_of("clone", parts())


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"inputs": {"train": "aa", "policy": "cc"}}, KeyChange("inputs", "policy", "bb", "cc")),
        ({"inputs": {"train": "aa"}}, KeyChange("inputs", "policy", "bb", None)),
        (
            {"config": {"cloning": {"epochs": 2, "betas": [1, 2]}, "device": "cpu"}},
            KeyChange("config", "cloning.epochs", 1, 2),
        ),
        (
            {"config": {"cloning": {"epochs": 1, "betas": [1, 2]}, "device": "cpu", "families": ["heat"]}},
            KeyChange("config", "families", None, ["heat"]),
        ),
        ({"packages": {"torch": "2.14.0"}}, KeyChange("packages", "torch", "2.13.0", "2.14.0")),
        ({"seed": 4}, KeyChange("seed", "seed", 3, 4)),
    ],
)
def test_one_change_is_reported_with_its_values_and_changes_the_key(changes, expected):
    assert key_changes(parts(), parts(**changes)) == [expected]
    assert key_of("clone", parts()) != key_of("clone", parts(**changes))


def test_only_the_changed_module_is_named(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(tmp_path)
    for name in ("first_module", "second_module"):
        (tmp_path / f"{name}.py").write_text("x = 1\n")
    before = parts(code=["first_module", "second_module"])
    (tmp_path / "second_module.py").write_text("x = 2\n")
    (change,) = key_changes(before, parts(code=["first_module", "second_module"]))
    assert (change.part, change.name) == ("code", "second_module") and change.before != change.now


def test_pins_are_read_without_comments_and_a_missing_file_is_refused(tmp_path):
    file = tmp_path / "constraints.txt"
    file.write_text("# made by hand\ntorch==2.13.0  # the CPU build\n\ngit+https://host/x\n")
    assert read_pins(file) == {"torch": "2.13.0", "git+https://host/x": ""}
    with pytest.raises(DataError, match=r"constraints\.txt cannot be read"):
        read_pins(tmp_path / "none" / "constraints.txt")


def test_the_parts_are_stored_with_the_result_and_earlier_results_are_listed(tmp_path):
    store = StageStore(tmp_path)
    for seed in (3, 4):
        key = key_of("clone", parts(seed=seed))
        (store.begin("clone", key) / "model").write_text(str(seed))
        store.commit(
            "clone", key, metrics={}, outputs={"model": "model"}, seconds=seed, parts=parts(seed=seed)
        )
    old = key_of("clone", parts(seed=5))
    (store.begin("clone", old) / "model").write_text("5")
    store.commit("clone", old, metrics={}, outputs={"model": "model"}, seconds=5)
    (tmp_path / "clone-damaged").mkdir()
    (tmp_path / "clone-damaged" / "stage.json").write_text("{")
    store.begin("clone", key_of("clone", parts(seed=6)))
    results = {result.key: result for result in store.earlier_results("clone")}
    assert {result.seconds: result.parts.get("seed") for result in results.values()} == {
        3.0: 3,
        4.0: 4,
        5.0: None,
    }
    assert store.earlier_results("clo") == []
