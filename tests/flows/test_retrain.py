"""The complete main job with tiny settings in a clone: real data, engine, Prefect, MLflow and DVC."""

import json
import subprocess
import sys

import pytest
from small_job import SMALL, environment_of, last_of_each, run

from components.trajectories.store import read_tasks


@pytest.fixture(scope="module")
def clone(finished):
    """A clone without data; the run pulled it from the remote in the repository."""
    return finished.clone


@pytest.fixture(scope="module")
def first(finished):
    """Output of the first run."""
    return finished.said


def test_a_fresh_clone_runs_to_a_promoted_policy(clone, first):
    latest = clone / "runs" / "latest"
    metrics = json.loads((latest / "metrics.json").read_text())
    for name in ("cloned", "dreamed", "refined"):
        entry = metrics[f"evaluate/{name}/success_rate"]
        assert entry["n"] == 6
        assert entry["low"] <= entry["value"] <= entry["high"]
    assert {
        "fidelity/next_state_exact",
        "fidelity/hallucination_rate",
        "fidelity/rollout_agreement/cloned",
    } <= metrics.keys()
    assert metrics["synthetic_rl/real_interactions"]["value"] == 0
    assert 0 < metrics["sim_to_real/real_interactions"]["value"] <= 90
    assert "Where to look" in first or "report.html" in first
    assert "data:image/svg+xml" in (latest / "report.html").read_text()


def test_the_time_outside_the_stages_is_printed(clone, first):
    code, output, _ = run(
        clone, "--json", str(clone.parent / "overhead.json"), verb=("bench", "overhead"), small=False
    )
    assert code == 0 and "orchestration, tracking, versioning" in output
    found = {
        name: entry["value"]
        for name, entry in json.loads((clone.parent / "overhead.json").read_text()).items()
    }
    stages = sum(value for name, value in found.items() if name.startswith("seconds/"))
    assert (
        found["seconds"] == pytest.approx(stages + found["overhead"])
        and 0 < found["overhead"] < found["seconds"]
    )


def test_the_manifest_names_everything(clone, first):
    manifest = json.loads((clone / "runs" / "latest" / "manifest.json").read_text())
    assert manifest["status"] == "finished"
    assert manifest["environment"]["git"]["commit"]
    assert manifest["data"]["dvc_in"] != manifest["data"]["dvc_out"]
    assert manifest["prefect_flow_run_id"]
    assert manifest["costs"]["real_interactions"] > 0
    assert [model["name"] for model in manifest["models"]] == ["dreamgym-policy", "dreamgym-experience-model"]
    stages = [stage["name"] for stage in manifest["stages"]]
    assert stages == [
        "validate",
        "experience_model",
        "clone",
        "check_cloned",
        "synthetic_rl",
        "check_dreamed",
        "sim_to_real",
        "evaluate",
    ]
    commit = manifest["data"]["experiment_commit"]
    shown = subprocess.run(
        ["git", "show", f"{commit}:data.dvc"], cwd=clone, capture_output=True, text=True, check=True
    ).stdout
    assert manifest["data"]["parts_out"]["data/alfworld/replay"] in shown
    status = subprocess.run(
        ["git", "status", "--porcelain"], cwd=clone, capture_output=True, text=True, check=True
    ).stdout
    assert status == "", "a run leaves the workspace as it was"
    assert (
        not (clone / "data" / "alfworld" / "replay").exists()
        and f"dreamgym data use {manifest['run_id']}" in first
    )


def test_dreamed_successes_are_checked_in_the_real_engine_during_rl(clone, first):
    """One iteration has one check, at its end; its steps are check interactions and train nothing."""
    (stage,) = (clone / ".dreamgym" / "stages").glob("synthetic_rl-*/stage.json")
    series = json.loads(stage.read_text())["details"]["series"]
    assert series["synthetic_rl/success_rate"][0] > 0, "otherwise there is nothing to look at"
    (agreement,), (checked,) = (
        series["synthetic_rl/rollout_agreement"],
        series["synthetic_rl/check_interactions"],
    )
    assert 0 <= agreement <= 1 and checked > 0
    metrics = json.loads((clone / "runs" / "latest" / "metrics.json").read_text())
    assert (
        metrics["synthetic_rl/check_interactions"]["value"] == checked
        and metrics["synthetic_rl/real_interactions"]["value"] == 0
    )


def test_mlflow_has_a_parent_with_a_child_a_stage_and_the_data(clone, first):
    from mlflow import MlflowClient

    from components.tracking.mlflow_adapter import runs_view as mlflow_view

    manifest = json.loads((clone / "runs" / "latest" / "manifest.json").read_text())
    client = MlflowClient(manifest["mlflow_uri"])
    parent = client.get_run(manifest["mlflow_run_id"])
    (linked,) = parent.inputs.dataset_inputs
    assert linked.dataset.digest == manifest["data"]["parts_in"]["data/alfworld/trajectories"]
    assert {tag.key: tag.value for tag in linked.tags}["dvc.version"] == manifest["data"]["dvc_in"]
    children = client.search_runs(
        [parent.info.experiment_id], f"tags.mlflow.parentRunId = '{parent.info.run_id}'"
    )
    assert len(children) == 8
    (evaluated,) = (child.data.metrics for child in children if child.info.run_name == "evaluate")
    assert {
        f"evaluate/refined/success_rate{part}" for part in ("", "_n", "_low", "_high")
    } <= evaluated.keys()
    metrics = json.loads((clone / "runs" / "latest" / "metrics.json").read_text())
    recorded = {name: entry["value"] for name, entry in metrics.items() if entry["value"] is not None}
    curves = {name for name in recorded if f"{name}_final" in parent.data.metrics}
    assert {
        "synthetic_rl/success_rate",
        "sim_to_real/success_rate",
        "clone/loss",
        "experience_model/loss",
    } <= curves
    assert "synthetic_rl/contradicting_answers_a_step" in curves
    assert recorded == {
        name: parent.data.metrics[f"{name}_final" if name in curves else name] for name in recorded
    }
    assert len(client.search_registered_models()) == 2
    assert len(parent.outputs.model_outputs) == 2, "the models are listed on the run's own page"
    assert set(mlflow_view.METRICS) - {"evaluate/success_rate"} <= parent.data.metrics.keys(), (
        "the first is of a study's cells"
    )
    assert set(mlflow_view.PARAMS) <= parent.data.params.keys()
    note = parent.data.tags["mlflow.note.content"]
    assert (
        note.startswith("**Promoted.** The challenger won")
        and "| refined |" in note
        and "report.html" in note
        and "## " not in note
    )
    assert "| condition | metric | value | interval | n | needed | result |" in note
    assert "| success rate reaches the floor (threshold) |" in note
    assert len(note) < 5000, "MLflow's description is whole"
    costs = manifest["costs"]
    assert (
        costs["tokens_trained"]
        > 0
        < costs["tokens_generated"]
        == parent.data.metrics["cost/tokens_generated"]
    )
    assert f"Tokens: {costs['tokens_trained']:,} trained on, {costs['tokens_generated']:,} generated." in note
    assert parent.info.run_name == f"retrain {manifest['run_id'][-4:]}, seed 0"


def test_curves_are_logged_once_on_the_run_and_on_its_stage_with_their_times(clone, first):
    from mlflow import MlflowClient

    manifest = json.loads((clone / "runs" / "latest" / "manifest.json").read_text())
    client = MlflowClient(manifest["mlflow_uri"])
    for stage in ("experience_model", "clone", "synthetic_rl", "sim_to_real"):
        (entry,) = (entry for entry in manifest["stages"] if entry["name"] == stage)
        record = json.loads(
            (clone / ".dreamgym" / "stages" / f"{stage}-{entry['key'][:12]}" / "stage.json").read_text()
        )
        for name, values in record["details"]["series"].items():
            of_stage, of_run = (
                client.get_metric_history(run, name)
                for run in (entry["mlflow_run_id"], manifest["mlflow_run_id"])
            )
            assert [(m.step, m.timestamp, m.value) for m in of_stage] == [
                (m.step, m.timestamp, m.value) for m in of_run
            ]
            assert [m.value for m in of_stage] == [value for value in values if value is not None], name
            assert len({m.step for m in of_stage}) == len(of_stage)
        if stage in ("experience_model", "clone"):
            losses = client.get_metric_history(manifest["mlflow_run_id"], f"{stage}/loss")
            assert losses[0].timestamp < losses[-1].timestamp, "measured one after the other"
            assert client.get_metric_history(manifest["mlflow_run_id"], f"{stage}/learning_rate")


def test_a_second_run_reuses_every_stage(clone, first):
    code, output, seconds = run(clone, "promotion.threshold=0")
    assert code == 0, output
    manifest = json.loads((clone / "runs" / "latest" / "manifest.json").read_text())
    assert all(stage["reused"] for stage in manifest["stages"])
    assert seconds < 300


def test_resume_first_lists_what_is_reused_and_what_runs(clone, first):
    code, output, _ = run(clone, verb=("resume", "--dry-run"), small=False)
    assert code == 1 and "is finished" in output
    manifest_file = clone / "runs" / "latest" / "manifest.json"
    text = manifest_file.read_text()
    key = next(stage["key"] for stage in json.loads(text)["stages"] if stage["name"] == "synthetic_rl")
    stage, away = clone / ".dreamgym" / "stages" / f"synthetic_rl-{key[:12]}", clone / "away"
    stage.rename(away)
    try:
        manifest_file.write_text(text.replace('"finished"', '"running"'))
        code, output, _ = run(clone, verb=("resume", "--dry-run"), small=False)
    finally:
        away.rename(stage)
        manifest_file.write_text(text)
    fates = [line.split("│")[1:3] for line in output.splitlines() if line.startswith("│")]
    told = {
        name.strip(): fate.strip() for name, fate in fates if name.strip()
    }  # a reason has lines of its own
    wanted = {
        "validate": "reused",
        "experience_model": "reused",
        "clone": "reused",
        "check_cloned": "reused",
        "synthetic_rl": "made",
    }
    assert code == 0 and told == wanted | dict.fromkeys(("check_dreamed", "sim_to_real", "evaluate"), "open")


def test_a_scheduled_run_is_skipped_while_nothing_has_changed(clone, first):
    """`retrain_from_file` first looks for the newest finished run of the same data, config and code."""
    asked = """
import json, sys
from pathlib import Path
from components.config import load_config
from flows.past_runs.resume import unchanged_since
configs = [load_config("configs/quick.yaml", overrides) for overrides in json.loads(sys.argv[1])]
print(json.dumps([unchanged_since(config, Path.cwd()) for config in configs]))
"""
    overrides = (
        ["promotion.threshold=0", "stage_timeout_minutes=7"],
        ["promotion.threshold=0.9"],
        ["promotion.threshold=0", "seed=1"],
    )
    command = [sys.executable, "-c", asked, json.dumps([last_of_each([*SMALL, *some]) for some in overrides])]
    done = subprocess.run(
        command, cwd=clone, env=environment_of(clone), capture_output=True, text=True, check=True
    )
    same, other_gate, other_seed = json.loads(done.stdout.splitlines()[-1])
    runs = sorted(path.name for path in (clone / "runs").iterdir() if not path.is_symlink())
    assert same in runs and other_gate == other_seed == ""


def test_a_stage_that_takes_too_long_ends_the_run_and_says_what_to_type(clone, first):
    code, output, _ = run(
        clone,
        "experience_model.learning_rate=2e-3",
        "stage_timeout_minutes=0.05",
        "tracking.dvc_experiment=false",
    )
    assert (
        code == 1
        and "experience_model had not ended after 0.05 minutes" in output
        and "continues from its checkpoint" in output
    )
    assert json.loads((clone / "runs" / "latest" / "manifest.json").read_text())["status"] == "failed"


def test_an_untrustworthy_dream_stops_the_run_before_rl(clone, first):
    """Without reasoning, which the backbone never read, and after 1 % of an epoch, some states are wrong."""
    poor = ["experience_model.reasoning=false", "experience_model.epochs=0.01"]
    code, output, _ = run(clone, "fidelity.min_next_state_exact=1", *poor)
    assert code == 3
    assert "next_state_exact/determined" in output
    assert "min_next_state_exact" in output
    manifest = json.loads((clone / "runs" / "latest" / "manifest.json").read_text())
    assert manifest["status"] == "failed"


def test_a_refused_promotion_is_a_normal_outcome(clone, first):
    code, output, _ = run(clone, "promotion.threshold=1")
    assert code == 4
    assert "floor" in output


def test_the_run_names_its_split_and_the_test_split_is_unread(clone, first):
    latest = clone / "runs" / "latest"
    manifest, metrics = (
        json.loads((latest / f"{name}.json").read_text()) for name in ("manifest", "metrics")
    )
    assert manifest["evaluation"]["split"] == "validation" and manifest["evaluation"]["draw"] == 0
    assert metrics["evaluate/validation_games"]["value"] == 6 and manifest["config"]["promotion"]["draw"] == 0
    assert (
        "validation split, draw 0" in first
        and "games of the validation split" in (latest / "report.html").read_text()
    )
    assert not (clone / ".dreamgym" / "test_reads.jsonl").exists()
    (played,) = {
        key for policy in json.loads((latest / "games.json").read_text()).values() for key in [tuple(policy)]
    }
    recorded = {
        task.id
        for name in ("train", "fidelity", "test")
        for task in read_tasks(clone / f"data/alfworld/tasks/{name}.parquet")
    }
    assert not recorded & set(played)


def test_near_its_floor_the_promotion_gate_plays_further_validation_games(clone, first):
    """Six games cannot show that a rate is above 0.05 unless half are won, nor that it is below."""
    before = json.loads((clone / "runs" / "latest" / "metrics.json").read_text())
    code, output, _ = run(clone, "promotion.threshold=0.05", "tracking.dvc_experiment=false")
    assert code in (0, 4), output
    manifest = json.loads((clone / "runs" / "latest" / "manifest.json").read_text())
    assert all(stage["reused"] for stage in manifest["stages"])
    floor = manifest["decision"]["conditions"][0]
    batches = manifest["evaluation"]["batches"]
    assert batches == 3 or (floor["passed"] and batches > 1) and floor["n"] == 6 * batches
    after = json.loads((clone / "runs" / "latest" / "metrics.json").read_text())
    assert after["cost/check_interactions"]["value"] > before["cost/check_interactions"]["value"]
    assert after["evaluate/refined/success_rate"] == before["evaluate/refined/success_rate"], (
        "the first batch is the same games"
    )


def test_test_games_are_read_on_demand_and_each_reading_is_counted(clone, first):
    code, output, _ = run(
        clone, "evaluation.tasks=2", verb=("evaluate", "--run", "latest", "--split", "test"), small=False
    )
    assert code == 0, output
    assert "have now been read 1 times" in output and output.count("on test games") == 3
    (entry,) = map(json.loads, (clone / ".dreamgym" / "test_reads.jsonl").read_text().splitlines())
    assert (entry["job"], entry["games"]) == ("evaluate", 2)
