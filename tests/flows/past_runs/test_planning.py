"""`--dry-run` of two small stages with a real stage store: reused or run, and why."""

from __future__ import annotations

import json

import pytest
from rich.console import Console

from components.config import load_config
from components.tracking.stage_store.stage_keys import key_of
from flows.cli.tables.plan_table import print_stages
from flows.printing.output import Output
from flows.run.pipeline_run import Run
from flows.run.plan import PlannedStage, describe_changes, plan, seconds_to_run, why
from flows.run.stage import Fingerprint, Stage, StageOutput


def first(run):
    inputs = {"data": Fingerprint((run.root / "input").read_text())}
    return Stage("first", no_work, inputs, run.slice("cloning"), "components.records")


def second(run):
    inputs = {"policy": StageOutput("first", "policy"), "tasks": Fingerprint("t")}
    return Stage("second", no_work, inputs, run.slice("evaluation"), "components.config.reading.section")


def no_work(inputs, directory):
    raise AssertionError("a plan runs nothing")


STEPS = {"first": PlannedStage(first), "second": PlannedStage(second)}


@pytest.fixture
def root(tmp_path):
    """A workspace with two pins, where both stages ran with the default config in 30 and 200 seconds."""
    (tmp_path / "input").write_text("v1")
    (tmp_path / "constraints.txt").write_text("numpy==2.0\ntorch==2.13.0\n")
    make(tmp_path)
    return tmp_path


def make(root, *overrides):
    """Run missing stages with this config."""
    run = Run(load_config(None, list(overrides)), root)
    for seconds, declare in ((30.0, first), (200.0, second)):
        stage = declare(run)
        parts = run.stage_key_parts(stage)
        key = key_of(stage.name, parts)
        result = run.store.find(stage.name, key)
        if result is None:
            (run.store.begin(stage.name, key) / "policy").write_text(f"{stage.name} {overrides}")
            outputs = {"policy": "policy"}
            result = run.store.commit(
                stage.name, key, metrics={}, outputs=outputs, seconds=seconds, parts=parts
            )
        run.results[stage.name] = result


def look(root, *overrides):
    """Return stage -> plan."""
    return {step.name: step for step in plan(load_config(None, list(overrides)), root, STEPS)}


def test_without_a_change_every_stage_is_reused(root):
    steps = look(root)
    assert [step.fate for step in steps.values()] == ["reused", "reused"]
    assert seconds_to_run(list(steps.values())) == 0.0 and steps["second"].seconds == 200.0


def test_a_changed_value_is_listed_with_both_values_and_later_stages_depend_on_it(root):
    steps = look(root, "cloning.epochs=7")
    before = load_config().cloning.epochs
    assert steps["first"].fate == "made" and steps["first"].seconds == 30.0
    assert f"config cloning.epochs {before} -> 7" in why(steps["first"]) and "code" not in why(steps["first"])
    assert steps["second"].fate == "open" and why(steps["second"]).startswith(
        "depends on what comes before: first"
    )
    assert "input policy (from first)" in why(steps["second"]) and "tasks" not in why(steps["second"])
    assert seconds_to_run(list(steps.values())) == 230.0


def test_a_changed_seed_package_and_input_are_listed_by_name(root):
    assert "seed 0 -> 4" in why(look(root, "seed=4")["first"])
    (root / "constraints.txt").write_text("numpy==2.1\ntorch==2.13.0\n")
    assert describe_changes(look(root)["first"].changes) == ["packages numpy 2.0 -> 2.1"]
    (root / "constraints.txt").write_text("numpy==2.0\ntorch==2.13.0\n")
    (root / "input").write_text("v2")
    assert describe_changes(look(root)["first"].changes) == ["input data v1 -> v2"]


def test_changed_code_is_listed_by_module(root, monkeypatch):
    from components.tracking.stage_store import stage_keys

    real = stage_keys.module_hash
    changed = "components.records"
    monkeypatch.setattr(stage_keys, "module_hash", lambda name: "0" if name == changed else real(name))
    assert describe_changes(look(root)["first"].changes) == ["code components.records"]


def test_a_stage_is_compared_with_the_most_similar_result(root):
    make(root, "cloning.epochs=7", "cloning.demonstrations=9", "seed=4")
    step = look(root, "cloning.epochs=7", "cloning.demonstrations=9", "seed=5")["first"]
    assert describe_changes(step.changes) == ["seed 4 -> 5"]


def test_a_result_without_parts_and_a_stage_without_a_result_are_noted(root):
    for record in root.glob(".dreamgym/stages/first-*/stage.json"):
        record.write_text(json.dumps(json.loads(record.read_text()) | {"key_parts": {}}))
    step = look(root, "seed=4")["first"]
    assert "does not say what its key was made of" in why(step) and step.seconds == 30.0
    for place in root.glob(".dreamgym/stages/second-*"):
        place.rename(place.with_name("other"))
    steps = look(root)
    assert (
        why(steps["second"]) == "there is no earlier result" and seconds_to_run(list(steps.values())) is None
    )


def test_an_interrupted_stage_resumes_from_its_checkpoint(root):
    run = Run(load_config(None, ["seed=4"]), root)
    key = key_of("first", run.stage_key_parts(first(run)))
    (run.store.begin("first", key) / "checkpoint.pt").write_text("half")
    step = look(root, "seed=4")["first"]
    assert step.fate == "goes on" and step.note == "from checkpoint.pt"


def test_the_table_lists_all_stages_and_json_has_each_change(root, capsys):
    page = Output(Console(width=200))
    print_stages(page, "What a run would do", list(look(root, "cloning.epochs=7").values()))
    said = capsys.readouterr().out
    assert "cloning.epochs" in said and "Stages that run: 2. Last time they took 4 min." in said
    (made, _) = page.data["stages"]
    before = load_config().cloning.epochs
    change = {"part": "config", "name": "cloning.epochs", "before": before, "now": 7.0}
    assert made["changes"] == [change] and made["fate"] == "made" and page.data["seconds_to_run"] == 230.0
