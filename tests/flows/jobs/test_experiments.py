"""Ablations, studies and fidelity runs with tiny settings, in a clone with the stages of a finished run."""

import json
import re
import shutil
import subprocess
import sys
import time

import pytest
from chat_server import ChatServer, Reply
from prefect_server import shared_server
from small_job import ANYHOW, SMALL, environment_of, last_of_each, make_clone, run
from typer.testing import CliRunner

from flows.cli import app as cli


@pytest.fixture(scope="module")
def clone(finished, tmp_path_factory):
    """A clone with the finished run's stages."""
    place = make_clone(tmp_path_factory.mktemp("experiments") / "clone")
    shutil.copytree(finished.kept / ".dreamgym" / "stages", place / ".dreamgym" / "stages")
    return place


def test_an_ablation_compares_variants_on_the_same_questions(clone):
    """Stages of the first run are reused; each variant has a run, and its differences are paired by task."""
    files = [clone / name for name in ("fidelity.json", "fidelity.png", "curve.svg")]
    options = ["--seeds=0", "--variants=no-reasoning", "--sizes=500"]
    options += [f"--{name}={file}" for name, file in zip(("json", "figure", "curve"), files, strict=True)]
    cells = clone / "ablated"
    code, output, _ = run(clone, verb=("ablate", "fidelity", f"--cells={cells}", *options))
    assert code == 0, output
    found = json.loads(files[0].read_text())
    assert set(found) == {"full", "no-reasoning", "data-500"}
    names = {
        "fidelity/next_state_exact/determined",
        "fidelity/policy_reward_precision",
        "fidelity/open_loop_exact/5",
    }
    assert all(names <= metrics.keys() for metrics in found.values())
    assert (
        found["full"]["fidelity/next_state_exact"]["n"] == found["data-500"]["fidelity/next_state_exact"]["n"]
    )
    assert {
        "difference/next_state_exact/determined",
        "difference/next_state_exact/determined/seed_0",
    } <= found["no-reasoning"].keys()
    assert "difference/fact_recall" not in found["full"]
    assert files[1].stat().st_size > 5000 and files[2].read_text().startswith("<?xml")
    manifest = json.loads((clone / "runs" / "latest" / "manifest.json").read_text())
    reused = {stage["name"]: stage["reused"] for stage in manifest["stages"]}
    assert reused == {
        "validate": True,
        "experience_model": False,
        "clone": True,
        "synthetic_rl": True,
        "policy_episodes": True,
        "fidelity": False,
    }
    metrics = json.loads((clone / "runs" / "latest" / "metrics.json").read_text())
    assert {
        "bound/value",
        "fidelity/denied_successes",
        "fidelity/next_state_exact/untrained",
    } <= metrics.keys()
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


@pytest.mark.usefixtures("quiet_process")
def test_an_unknown_variant_is_refused_before_anything_runs(clone):
    def refused(option: str) -> str:
        done = CliRunner().invoke(cli.app, ["ablate", "fidelity", "--root", str(clone), option])
        assert done.exit_code == 2, done.output
        return done.output

    began = time.monotonic()
    said = refused("--variants=no-reasonning")
    assert "no-reasonning" in said and "no-reasoning" in said
    said = refused("--figure=bars.xyz")
    assert "bars.xyz" in said and ".png" in said
    assert time.monotonic() - began < 60


def test_a_study_fills_its_cells_and_resumes(clone):
    """Three methods, one seed; one more method runs alone; cells of another config are refused."""
    small = ["promotion.threshold=0"]
    small += [
        "rl.baseline.tasks=2",
        "rl.baseline.num_generations=2",
        "rl.baseline.budget=900",
        "rl.baseline.iterations=2",
    ]
    cells, table, figures = clone / "cells", clone / "study.json", clone / "figures"
    options = ["--seeds=0", f"--cells={cells}", f"--json={table}", f"--figures={figures}"]

    def study(methods, *overrides):
        return run(clone, *small, *overrides, verb=("study", f"--methods={methods}", *options))

    code, output, _ = study("clone,gigpo-real,s2r-gigpo")
    assert code == 0, output
    written = {path: path.stat().st_mtime_ns for path in cells.iterdir()}
    assert len(written) == 3
    code, output, _ = study("clone,gigpo-real,dream-ppo,s2r-gigpo,dpo-logs,rounds-gigpo,graded-40-flipped")
    assert code == 0 and {path: path.stat().st_mtime_ns for path in written} == written
    found = {path.stem: json.loads(path.read_text()) for path in cells.glob("*.json")}
    offline = found.pop("dpo-logs-0")
    assert offline["real_interactions"] == offline["dreamed_interactions"] == 0 and offline["curve"] == []
    assert offline["policy"] != found["clone-0"]["policy"] and len(offline["games"]) == 6
    graded, rounds = found.pop("graded-40-flipped-0"), found.pop("rounds-gigpo-0")
    assert {"fidelity/kindness/dreamed", "fidelity/reward_precision"} <= graded["figures"].keys()
    assert graded["real_interactions"] == 0 < graded["check_interactions"]
    assert offline["check_interactions"] == 0 < offline["evaluation_interactions"], "it played games alone"
    played = [(real > 0, dreamed > 0) for real, dreamed, *_ in rounds["curve"]]
    assert played == [(False, True), (True, True), (True, True), (True, True)]
    assert [point[0] for point in rounds["curve"]] == sorted(point[0] for point in rounds["curve"])
    assert 0 < rounds["real_interactions"] <= 90 and rounds["curve"][-1][0] == rounds["real_interactions"]
    assert set(found) == {"clone-0", "gigpo-real-0", "dream-ppo-0", "s2r-gigpo-0"}
    spent = {
        name: (cell["real_interactions"] > 0, cell["dreamed_interactions"] > 0)
        for name, cell in found.items()
    }
    assert spent == {"clone-0": (0, 0), "gigpo-real-0": (1, 0), "dream-ppo-0": (0, 1), "s2r-gigpo-0": (1, 1)}
    logs = {name: cell["recorded_transitions"]["offline"] for name, cell in found.items()}
    assert 0 < logs["clone-0"] == logs["gigpo-real-0"] < logs["dream-ppo-0"] == logs["s2r-gigpo-0"]
    assert found["s2r-gigpo-0"]["real_interactions"] <= 90 and len(found["s2r-gigpo-0"]["curve"]) == 2
    assert all(len(cell["games"]) == 6 and cell["run_id"] and cell["commit"] for cell in found.values())
    assert set(found["clone-0"]["figures"]) == {"clone/updates"}, "nothing but the clone was trained"
    assert all(name.startswith(("real_rl/", "clone/")) for name in found["gigpo-real-0"]["figures"])
    metrics, dreamed = (
        json.loads(table.read_text()),
        {"fidelity/next_state_exact/determined", "synthetic_rl/unparsable_episodes"},
    )
    assert dreamed <= found["dream-ppo-0"]["figures"].keys() and dreamed <= metrics["dream-ppo"].keys()
    assert metrics["s2r-gigpo"]["evaluate/success_rate"]["n"] == 6
    assert "difference/success_rate" in metrics["dream-ppo"]
    assert "difference/p_value" not in metrics["dream-ppo"], "one seed is no test"
    drawn = ("success", "interactions", "curves", "cost", "curriculum", "graded-dreams")
    assert {path.name for path in figures.iterdir()} == {f"study-{name}.png" for name in drawn}

    code, output, _ = study("clone", "evaluation.tasks=5")
    assert code == 1
    assert "clone-0.json was made with something else: evaluation.tasks (6, not 5)" in " ".join(
        output.split()
    )

    # A cell that was killed before its evaluation goes on by its run alone, and is the same.
    cell = found["gigpo-real-0"]
    manifest = clone / "runs" / cell["run_id"] / "manifest.json"
    manifest.write_text(json.dumps(json.loads(manifest.read_text()) | {"status": "killed"}))
    (key,) = [
        stage["key"]
        for stage in json.loads(manifest.read_text())["stages"]
        if stage["name"] == "evaluate_policy"
    ]
    shutil.rmtree(clone / ".dreamgym" / "stages" / f"evaluate_policy-{key[:12]}")
    (cells / "gigpo-real-0.json").unlink()
    code, planned, _ = run(clone, verb=("resume", cell["run_id"], "--dry-run"), small=False)
    fates = dict(re.findall(r"^│ (\w+) +│ (reused|made)", planned, re.MULTILINE))
    assert code == 0 and not (cells / "gigpo-real-0.json").exists()
    assert fates == {
        "validate": "reused",
        "clone": "reused",
        "real_rl": "reused",
        "evaluate_policy": "made",
    }, planned
    code, output, _ = run(clone, verb=("resume", cell["run_id"]), small=False)
    assert code == 0, output
    again = json.loads((cells / "gigpo-real-0.json").read_text())
    assert {name for name in cell if cell[name] != again[name]} == {"run_id"}


def test_the_scheduled_study_reads_its_cells_back_and_leaves_the_workspace_clean(clone):
    """The weekly deployment's flow, twice: files that git ignores, and the same numbers."""
    code = """
import json, sys
from pathlib import Path
from flows.deployment.scheduled_flows import study_from_file
files = study_from_file(*json.loads(sys.argv[1]))
home = Path.cwd() / ".dreamgym"
assert files[1:] and all(Path(file).is_relative_to(home) and Path(file).stat().st_size for file in files)
print(json.dumps([json.loads(Path(files[0]).read_text()), Path(".dreamgym/study/clone-0.json").read_text()]))
"""
    given = json.dumps(["configs/quick.yaml", last_of_each([*SMALL, *ANYHOW]), "clone", [0]])
    before = subprocess.run(
        ["git", "status", "--porcelain"], cwd=clone, capture_output=True, text=True, check=True
    ).stdout
    environment, made = environment_of(clone) | {"PREFECT_API_URL": shared_server()}, []
    for _ in range(2):
        done = subprocess.run(
            [sys.executable, "-c", code, given], cwd=clone, env=environment, capture_output=True, text=True
        )
        assert done.returncode == 0, done.stdout + done.stderr
        made.append(json.loads(done.stdout.splitlines()[-1]))
    assert made[0] == made[1] and made[0][0]["clone"]["evaluate/success_rate"]["n"] == 6
    assert (
        subprocess.run(
            ["git", "status", "--porcelain"], cwd=clone, capture_output=True, text=True, check=True
        ).stdout
        == before
    )


def test_a_crashed_cell_is_reported_and_the_others_run_on(clone):
    """Rollouts in two processes, as by default."""
    options = ["--seeds=0", f"--cells={clone / 'other'}", "--methods=clone,dream-gigpo"]
    code, output, _ = run(
        clone, "rl.dream.learning_rate=1e30", "rl.dream.processes=2", verb=("study", *options)
    )
    assert code == 1 and "dream-gigpo, seed 0 crashed: TrainingError" in output
    assert [path.name for path in (clone / "other").iterdir()] == ["clone-0.json"]


@pytest.mark.slow
def test_policies_and_models_of_two_worlds_are_evaluated_in_each_other(clone):
    """Stages of the first run are reused; a small shop is trained on here."""
    table = clone / "transfer.json"
    code, output, _ = run(
        clone, verb=("transfer", "configs/quick.yaml", "configs/quick-webshop.yaml", f"--json={table}")
    )
    assert code == 0, output
    found = json.loads(table.read_text())
    assert set(found) == {"alfworld", "webshop"} and found["alfworld"].keys() == found["webshop"].keys()
    assert found["webshop"]["transfer/alfworld/success_rate/dreamed"]["n"] == 6
    own, other = (
        found["alfworld"][f"transfer/{world}/next_state_exact"] for world in ("alfworld", "webshop")
    )
    assert own["n"] == other["n"] > 20 and own["low"] > other["high"]
    manifests = [json.loads(path.read_text()) for path in (clone / "runs").glob("*/manifest.json")]
    (games,) = (
        m for m in manifests if m["flow"] == "transfer" and m["config"]["environment"]["name"] == "alfworld"
    )
    reused = {stage["name"] for stage in games["stages"] if stage["reused"]}
    assert (
        reused == {"validate", "experience_model", "clone", "synthetic_rl"} and games["status"] == "finished"
    )


def test_a_language_model_judges_some_steps_of_the_examination(clone):
    """A real server gives every step the best scores; earlier stages are reused."""
    best = {"causal_consistency": 2, "diversity": 2, "informativeness": 2, "hallucination": 2}
    with ChatServer(answer=lambda request: Reply({"rubric_scores": best})) as server:
        code, output, _ = run(
            clone,
            "fidelity.judged=6",
            f"endpoint.url={server.url}",
            "endpoint.model=judge",
            verb=("fidelity",),
        )
    assert code == 0, output
    metrics = json.loads((clone / "runs" / "latest" / "metrics.json").read_text())
    asked = metrics["judge/hallucination"]["n"]
    assert (
        1 <= asked <= 6
        and {f"judge/agreement/{axis}" for axis in ("consistency", "hallucination")} <= metrics.keys()
    )
    manifest = json.loads((clone / "runs" / "latest" / "manifest.json").read_text())
    made = {stage["name"] for stage in manifest["stages"] if not stage["reused"]}
    assert "judge" in made and made <= {"policy_episodes", "fidelity", "judge"}
    code, output, _ = run(clone, "endpoint.model=judge", verb=("fidelity",))
    assert code == 2 and "nothing asks an endpoint" in output


@pytest.mark.slow
def test_an_llm_teacher_and_chroma_work_through_the_whole_examination(clone, finished):
    """A real server annotates the training episodes; the stored index is built once and always used."""

    def annotate(request):
        steps = json.loads(request["messages"][1]["content"])["steps"]
        plans = [{"step_id": step["step_id"], "transition_plan": f"after {step['action']}"} for step in steps]
        return Reply(
            {
                "task_tutorial": {"Overall Plan": "p", "Success Mode": "s", "Failure Mode": "f"},
                "state_transitions": plans,
            }
        )

    taken = shutil.copytree(finished.kept / "data" / "alfworld" / "backbone", clone.parent / "model")
    asked = [
        "experience_model.teacher=llm",
        "experience_model.transitions=500",
        "retrieval.index=chroma",
        "endpoint.model=teacher",
    ]
    asked += [f"experience_model.path={taken}"]
    with ChatServer(answer=annotate) as server:
        code, output, _ = run(clone, *asked, f"endpoint.url={server.url}", verb=("fidelity",))
        taught = len(server.requests)
    assert code == 0, output
    metrics = json.loads((clone / "runs" / "latest" / "metrics.json").read_text())
    assert 1 < taught < 10, "a tenth of the episodes is learnt from, and no more are paid for"
    assert metrics["teacher/calls"]["value"] == taught and metrics["teacher/unannotated_rate"]["value"] == 0
    assert metrics["teacher/prompt_tokens"]["value"] == 11 * taught
    assert 0 < metrics["retrieval/recall"]["value"] <= 1
    assert list((clone / ".dreamgym" / "index").rglob("*.sqlite3"))
    manifest = json.loads((clone / "runs" / "latest" / "manifest.json").read_text())
    assert manifest["costs"]["endpoint_calls"] == taught
