"""The whole main job, small, in a clone of this repository: real data, real engine, real Prefect, MLflow and DVC."""

import json
import shutil
import subprocess
import sys

import pytest
from chat_server import ChatServer, Say
from small_job import SMALL, environment_of, make_clone, run


@pytest.fixture(scope="module")
def clone(tmp_path_factory):
    """A clone without data: the run pulls it from the remote that lies in the repository."""
    return make_clone(tmp_path_factory.mktemp("fresh") / "clone")


@pytest.fixture(scope="module")
def first(clone):
    """The first run."""
    code, output, _ = run(clone, "promotion.threshold=0")
    assert code == 0, output
    return output


def test_a_fresh_clone_runs_to_a_promoted_policy(clone, first):
    latest = clone / "runs" / "latest"
    metrics = json.loads((latest / "metrics.json").read_text())
    for name in ("cloned", "dreamed", "refined"):
        entry = metrics[f"evaluate/{name}/success_rate"]
        assert entry["n"] == 6
        assert entry["low"] <= entry["value"] <= entry["high"]
    assert {"fidelity/next_state_exact", "fidelity/hallucination_rate", "fidelity/rollout_agreement/cloned"} <= metrics.keys()
    assert metrics["synthetic_rl/real_interactions"]["value"] == 0
    assert 0 < metrics["sim_to_real/real_interactions"]["value"] <= 90
    assert "Where to look" in first or "report.html" in first
    assert "data:image/svg+xml" in (latest / "report.html").read_text()


def test_the_time_outside_the_stages_is_told(clone, first):
    code, output, _ = run(clone, "--json", str(clone / "overhead.json"), verb=("bench", "overhead"), small=False)
    assert code == 0 and "orchestration, tracking, versioning" in output
    found = {name: entry["value"] for name, entry in json.loads((clone / "overhead.json").read_text()).items()}
    stages = sum(value for name, value in found.items() if name.startswith("seconds/"))
    assert found["seconds"] == pytest.approx(stages + found["overhead"]) and 0 < found["overhead"] < found["seconds"]


def test_the_manifest_names_everything(clone, first):
    manifest = json.loads((clone / "runs" / "latest" / "manifest.json").read_text())
    assert manifest["status"] == "finished"
    assert manifest["environment"]["git"]["commit"]
    assert manifest["data"]["dvc_in"] != manifest["data"]["dvc_out"]
    assert manifest["prefect_flow_run_id"]
    assert manifest["costs"]["real_interactions"] > 0
    assert [model["name"] for model in manifest["models"]] == ["dreamgym-policy", "dreamgym-experience-model"]
    stages = [stage["name"] for stage in manifest["stages"]]
    assert stages == ["validate", "experience_model", "clone", "check_cloned", "synthetic_rl", "check_dreamed", "sim_to_real", "evaluate"]
    commit = manifest["data"]["experiment_commit"]
    shown = subprocess.run(["git", "show", f"{commit}:data.dvc"], cwd=clone, capture_output=True, text=True, check=True).stdout
    assert manifest["data"]["dvc_out"] in shown


def test_mlflow_has_a_parent_with_a_child_a_stage_and_the_data(clone, first):
    from mlflow import MlflowClient

    manifest = json.loads((clone / "runs" / "latest" / "manifest.json").read_text())
    client = MlflowClient(manifest["mlflow_uri"])
    parent = client.get_run(manifest["mlflow_run_id"])
    digests = [entry.dataset.digest for entry in parent.inputs.dataset_inputs]
    assert any(manifest["data"]["dvc_in"].startswith(digest) or digest in manifest["data"]["dvc_in"] for digest in digests)
    children = client.search_runs([parent.info.experiment_id], f"tags.mlflow.parentRunId = '{parent.info.run_id}'")
    assert len(children) == 8
    assert len(client.search_registered_models()) == 2


def test_a_second_run_reuses_every_stage(clone, first):
    code, output, seconds = run(clone, "promotion.threshold=0")
    assert code == 0, output
    manifest = json.loads((clone / "runs" / "latest" / "manifest.json").read_text())
    assert all(stage["reused"] for stage in manifest["stages"])
    assert seconds < 300


def test_going_on_says_first_what_is_there_and_what_is_made(clone, first):
    code, output, _ = run(clone, verb=("resume", "--dry-run"), small=False)
    assert code == 1 and "has come to its end" in output
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
    told = {name.strip(): fate.strip() for name, fate in fates}
    wanted = {"validate": "reused", "experience_model": "reused", "clone": "reused", "check_cloned": "reused", "synthetic_rl": "made"}
    assert code == 0 and told == wanted | dict.fromkeys(("check_dreamed", "sim_to_real", "evaluate"), "open")


def test_a_scheduled_run_is_skipped_while_nothing_has_changed(clone, first):
    """What `retrain_from_file` asks before it starts: the newest finished run of the same data, config and code."""
    code = "from pathlib import Path; from components.config import load_config; from flows.resume import unchanged_since; "
    code += "import sys; print(unchanged_since(load_config('configs/quick.yaml', sys.argv[1:]), Path.cwd()))"

    def asked(*overrides: str) -> str:
        command = [sys.executable, "-c", code, *SMALL, *overrides]
        done = subprocess.run(command, cwd=clone, env=environment_of(clone), capture_output=True, text=True, check=True)
        return done.stdout.splitlines()[-1]

    runs = sorted(path.name for path in (clone / "runs").iterdir() if not path.is_symlink())
    found = asked("promotion.threshold=0", "timeout_minutes.stage=7")
    assert found in runs
    assert asked("promotion.threshold=0.9") == asked("promotion.threshold=0", "seed=1") == ""


def test_a_stage_that_takes_too_long_ends_the_run_and_says_what_to_type(clone, first):
    code, output, _ = run(clone, "seed=5", "timeout_minutes.experience_model=0.05", "tracking.dvc_experiment=false")
    assert code == 1 and "experience_model had not ended after 0.05 minutes" in output and "goes on from its checkpoint" in output
    assert json.loads((clone / "runs" / "latest" / "manifest.json").read_text())["status"] == "failed"


def test_an_untrustworthy_dream_stops_the_run_before_rl(clone, first):
    """Without reasoning, in a form that the backbone has never read, after a hundredth of a pass: the model gets some state wrong."""
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


def test_an_ablation_compares_variants_on_the_same_questions(clone, first):
    """What the first run made is reused; each variant has a run of its own, and its differences are paired by task."""
    files = [clone / name for name in ("fidelity.json", "fidelity.png", "curve.svg")]
    options = ["--seeds=0", "--variants=no-reasoning", "--sizes=500"]
    options += [f"--{name}={file}" for name, file in zip(("json", "figure", "curve"), files, strict=True)]
    cells = clone / "ablated"
    code, output, _ = run(clone, verb=("ablate", "fidelity", f"--cells={cells}", *options))
    assert code == 0, output
    found = json.loads(files[0].read_text())
    assert set(found) == {"full", "no-reasoning", "data-500"}
    names = {"fidelity/next_state_exact/determined", "fidelity/policy_reward_precision", "fidelity/open_loop_exact/5"}
    assert all(names <= metrics.keys() for metrics in found.values())
    assert found["full"]["fidelity/next_state_exact"]["n"] == found["data-500"]["fidelity/next_state_exact"]["n"]
    assert "difference/next_state_exact/determined" in found["no-reasoning"] and "difference/fact_recall" not in found["full"]
    assert files[1].stat().st_size > 5000 and files[2].read_text().startswith("<?xml")
    manifest = json.loads((clone / "runs" / "latest" / "manifest.json").read_text())
    reused = {stage["name"]: stage["reused"] for stage in manifest["stages"]}
    assert reused == {
        "validate": True, "experience_model": False, "clone": True, "synthetic_rl": True, "policy_episodes": True, "fidelity": False
    }  # fmt: skip
    metrics = json.loads((clone / "runs" / "latest" / "metrics.json").read_text())
    assert {"bound/value", "fidelity/denied_successes", "fidelity/next_state_exact/untrained"} <= metrics.keys()
    assert metrics["fidelity/open_loop_unanswered"]["n"] == 9  # three policies dream three tasks each
    assert metrics["fidelity/real_success_rate/held_out/untrained"]["n"] == 3
    # The cells alone, without any stage, come to the same numbers.
    assert {file.name for file in cells.glob("*.json")} == {f"{name}-0.json" for name in found}
    assert sum(file.stat().st_size for file in cells.iterdir()) < 200_000
    stages = clone / ".dreamgym" / "stages"
    stages.rename(clone / "aside")
    code, output, _ = run(clone, verb=("ablate", "fidelity", f"--cells={cells}", *options))
    shutil.rmtree(stages, ignore_errors=True)
    (clone / "aside").rename(stages)
    assert code == 0 and json.loads(files[0].read_text()) == found


def test_a_variant_that_there_is_not_is_refused_before_anything_runs(clone, first):
    code, output, seconds = run(clone, verb=("ablate", "fidelity", "--variants", "no-reasonning"))
    assert code == 2 and "no-reasonning" in output and "no-reasoning" in output and seconds < 60
    code, output, seconds = run(clone, verb=("ablate", "fidelity", "--figure=bars.xyz"))
    assert code == 2 and "bars.xyz" in output and ".png" in output and seconds < 60


def test_a_study_fills_its_cells_and_goes_on_where_it_was(clone, first):
    """Four methods, one seed; again, and nothing is made; with one more method, and only that is; of another config, and it is refused."""
    small = ["real_rl.tasks=2", "real_rl.group=2", "real_rl.budget=900", "real_rl.iterations=2", "promotion.threshold=0"]
    cells, table, figures = clone / "cells", clone / "study.json", clone / "figures"
    options = ["--seeds=0", f"--cells={cells}", f"--json={table}", f"--figures={figures}"]

    def study(methods, *overrides):
        return run(clone, *small, *overrides, verb=("study", f"--methods={methods}", *options))

    code, output, _ = study("clone,grpo-real,dream-ppo,s2r-grpo")
    assert code == 0, output
    found = {path.stem: json.loads(path.read_text()) for path in cells.glob("*.json")}
    assert set(found) == {"clone-0", "grpo-real-0", "dream-ppo-0", "s2r-grpo-0"}
    spent = {name: (cell["real_interactions"] > 0, cell["dreamed_interactions"] > 0) for name, cell in found.items()}
    assert spent == {"clone-0": (0, 0), "grpo-real-0": (1, 0), "dream-ppo-0": (0, 1), "s2r-grpo-0": (1, 1)}
    assert found["s2r-grpo-0"]["real_interactions"] <= 90 and len(found["s2r-grpo-0"]["curve"]) == 2
    assert all(len(cell["games"]) == 6 and cell["run_id"] and cell["commit"] for cell in found.values())
    metrics = json.loads(table.read_text())
    assert metrics["s2r-grpo"]["evaluate/success_rate"]["n"] == 6 and "difference/p_value" in metrics["dream-ppo"]
    assert {path.name for path in figures.iterdir()} == {f"study-{name}.png" for name in ("interactions", "curves", "cost", "curriculum")}

    written = {path: path.stat().st_mtime_ns for path in cells.iterdir()}
    code, output, _ = study("clone,grpo-real,dream-grpo")
    assert code == 0 and {path: path.stat().st_mtime_ns for path in written} == written and (cells / "dream-grpo-0.json").is_file()
    code, output, _ = study("clone", "evaluation.tasks=5")
    assert code == 1
    assert "clone-0.json was made with something else: evaluation.tasks (6, not 5)" in " ".join(output.split())


def test_a_cell_that_crashes_is_told_and_the_others_go_on(clone, first):
    options = ["--seeds=0", f"--cells={clone / 'other'}", "--methods=clone,dream-grpo"]
    code, output, _ = run(clone, "synthetic_rl.learning_rate=1e30", "synthetic_rl.epochs=3", verb=("study", *options))
    assert code == 1 and "dream-grpo, seed 0 crashed: TrainingError" in output
    assert [path.name for path in (clone / "other").iterdir()] == ["clone-0.json"]


def test_a_language_model_judges_some_steps_of_the_examination(clone, first):
    """A real server of the protocol that gives every step the best scores; what was examined before is reused."""
    best = {"causal_consistency": 2, "diversity": 2, "informativeness": 2, "hallucination": 2}
    with ChatServer(answer=lambda request: Say({"rubric_scores": best})) as server:
        code, output, _ = run(clone, "fidelity.judged=6", f"endpoint.url={server.url}", "endpoint.model=judge", verb=("fidelity",))
    assert code == 0, output
    metrics = json.loads((clone / "runs" / "latest" / "metrics.json").read_text())
    asked = metrics["judge/hallucination"]["n"]
    assert 1 <= asked <= 6 and {f"judge/agreement/{axis}" for axis in ("consistency", "hallucination")} <= metrics.keys()
    manifest = json.loads((clone / "runs" / "latest" / "manifest.json").read_text())
    made = {stage["name"] for stage in manifest["stages"] if not stage["reused"]}
    assert "judge" in made and made <= {"policy_episodes", "fidelity", "judge"}
    code, output, _ = run(clone, "endpoint.model=judge", verb=("fidelity",))
    assert code == 2 and "nothing asks an endpoint" in output


def test_a_language_model_teaches_and_chroma_retrieves_through_the_whole_examination(clone, first):
    """A real server annotates every episode; the stored index is built once and used by training, dreams and measurement."""

    def annotate(request):
        steps = json.loads(request["messages"][1]["content"])["steps"]
        plans = [{"step_id": step["step_id"], "transition_plan": f"after {step['action']}"} for step in steps]
        return Say({"task_tutorial": {"Overall Plan": "p", "Success Mode": "s", "Failure Mode": "f"}, "state_transitions": plans})

    taken = shutil.copytree(clone / "data" / "backbone", clone.parent / "model")
    asked = ["experience_model.teacher=llm", "experience_model.transitions=500", "retrieval.index=chroma", "endpoint.model=teacher"]
    asked += [f"experience_model.path={taken}"]
    with ChatServer(answer=annotate) as server:
        code, output, _ = run(clone, *asked, f"endpoint.url={server.url}", verb=("fidelity",))
        taught = len(server.requests)
    assert code == 0, output
    metrics = json.loads((clone / "runs" / "latest" / "metrics.json").read_text())
    assert taught > 10 and metrics["teacher/calls"]["value"] == taught and metrics["teacher/unannotated_rate"]["value"] == 0
    assert metrics["teacher/prompt_tokens"]["value"] == 11 * taught
    assert 0 < metrics["retrieval/recall"]["value"] <= 1
    assert list((clone / ".dreamgym" / "index").rglob("*.sqlite3"))
    manifest = json.loads((clone / "runs" / "latest" / "manifest.json").read_text())
    assert manifest["costs"]["endpoint_calls"] == taught
