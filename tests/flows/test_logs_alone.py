"""`dreamgym retrain --logs`: from a log to a report without a live world, and a person's decision."""

from __future__ import annotations

import json
import shutil

import pytest
from chat_server import ChatServer, Reply
from foreign import CHATML, make_checkpoint
from small_job import make_clone, run

from components.errors import PROMOTION_REFUSED, FidelityGateClosed
from components.tracking.manifest import Manifest
from flows.past_runs.run_on_logs import TAKEN, find_run_on_logs

LAMPS = 24
"""Tasks of the log."""
SMALL = [
    "cloning.judged_episodes=4",
    *("fidelity.min_next_state_exact=0", "fidelity.min_reward_precision=0", "fidelity.max_unparsable_rate=1"),
    *("cloning.epochs=1", "rl.tasks=2", "rl.num_generations=2", "rl.dream.iterations=1"),
    *("evaluation.tasks=4", "tracking.dvc_experiment=false", "fidelity.tasks=2"),
]


TRAINED = ["experience_model.epochs=1", "experience_model.resamples=1"]


def write_log(path, *, outcome=True):
    """Write a log of an agent that presses switches; every third episode fails."""
    lines = []
    for number in range(LAMPS):
        is_solved = number % 3 > 0
        action = f"press switch {number}" if is_solved else "press switch 99"
        answer = f"Lamp {number} is on." if is_solved else "Nothing happens."
        messages = [
            {"role": "system", "content": "A room with lamps. Actions: press switch N, wait."},
            {"role": "user", "content": f"Lamp {number} is off."},
            {"role": "assistant", "content": "Action: wait"},
            {"role": "user", "content": f"Lamp {number} is still off."},
            {"role": "assistant", "content": f"Thought: its switch\nAction: {action}"},
            {"role": "user", "content": answer},
        ]
        record = {"id": f"e{number}", "task": f"turn on lamp {number}", "messages": messages}
        lines.append(json.dumps(record | ({"success": is_solved} if outcome else {})))
    path.write_text("\n".join(lines) + "\n")


@pytest.fixture(scope="module")
def repository(tmp_path_factory):
    """A clone with a tiny chat model and a log."""
    place = make_clone(tmp_path_factory.mktemp("logs") / "clone")
    make_checkpoint(place / "model", "llama", template=CHATML, max_position_embeddings=2048)
    write_log(place / "agent.jsonl")
    return place


def retrain(repository, *words, dream=TRAINED):
    """Run `dreamgym retrain` on the tiny model; return exit code, output and what --json wrote."""
    written = repository / "printed.json"
    written.unlink(missing_ok=True)
    code, text, _ = run(
        repository, "backbone.path=model", *(*SMALL, *dream), "--json", str(written), *words, small=False
    )
    return code, text, json.loads(written.read_text()) if written.is_file() else {}


@pytest.fixture(scope="module")
def trained(repository):
    code, text, printed = retrain(repository, "--logs", "agent.jsonl")
    assert code == 0, text
    return printed, text


def test_a_log_becomes_a_report_that_says_what_is_not_verified(repository, trained):
    printed, status = trained
    latest = repository / "runs" / "latest"
    manifest = Manifest.load(latest)
    assert [stage.name for stage in manifest.stages] == [
        *("validate", "experience_model", "clone", "synthetic_rl", "evaluate_on_logs")
    ]
    assert manifest.costs.real_interactions == manifest.costs.check_interactions == 0
    assert printed["promoted"] is False and "No live world" in printed["reason"]
    assert "left out, step 10" in status
    metrics = json.loads((latest / "metrics.json").read_text())
    for policy in ("cloned", "dreamed"):
        assert metrics[f"logs/{policy}/dreamed_success_rate"]["n"] > 0
        assert metrics[f"logs/{policy}/same_action_rate"]["n"] > 0
    assert not any(name.startswith("evaluate/") for name in metrics)
    assert metrics["clone/judged_episodes"]["value"] == 4
    assert {"fidelity/token_f1", "fidelity/normalised_match", "fidelity/calibration/error"} <= metrics.keys()
    report = (latest / "report.md").read_text()
    assert "What is not verified" in report and "nobody knows how often it succeeds" in report
    assert "Success on held-out real games" not in report
    card = (latest / "policy" / "README.md").read_text()
    assert "Nothing here was verified in a live world" in card and "never played in the real one" in card


def test_the_world_and_the_limits_are_set_from_the_log(repository, trained):
    printed, _ = trained
    assert printed["fitted"]["environment.description"].startswith("A room with lamps.")
    config = json.loads((repository / "runs" / "latest" / "config.json").read_text())
    for key, value in printed["fitted"].items():
        section, *_, name = key.split(".")
        part = config[section] if section != "rl" else config["rl"][key.split(".")[1]]
        assert part[name] == value


def test_the_same_command_reuses_every_stage(repository, trained):
    code, text, printed = retrain(repository, "--logs", "agent.jsonl")
    assert code == 0, text
    assert all(stage["reused"] for stage in printed["stages"])


def test_a_person_promotes_the_policy(repository, trained):
    def promote(*words):
        config = str(repository / "runs" / "latest" / "config.json")
        return run(repository, "latest", *words, "--config", config, verb=("promote",), small=False)[:2]

    code, text = promote("--by", " ", "--reason", "x")
    assert code != 0 and "Expected the name of the person" in text
    code, text = promote("--by", "Ada", "--reason", "read ten episodes")
    assert code == 0 and "Version 1 of" in text and "Decided by Ada" in text
    code, text = promote("--by", "Ada", "--reason", "again")
    assert code != 0 and "is the champion already" in text


def import_log(repository, *words):
    return run(repository, *words, verb=("import",), small=False)[:2]


def test_logs_without_a_success_are_refused_and_the_data_stays(repository, trained, tmp_path):
    log = tmp_path / "unknown.jsonl"
    write_log(log, outcome=False)
    before = (repository / "data.dvc").read_text()
    code, text, _ = retrain(repository, "--logs", str(log))
    assert code != 0 and "No training episode is known as a success" in text and "--outcome" in text
    assert (repository / "data.dvc").read_text() == before


def test_a_dry_run_imports_nothing_and_says_what_to_type(repository, trained):
    code, text, _ = retrain(repository, "--logs", "agent.jsonl", "--dry-run")
    assert code != 0 and "dreamgym import FILE, then dreamgym retrain" in text
    code, text, _ = retrain(repository, "--outcome", "unknown")
    assert code != 0 and "--outcome without --logs" in text


def test_after_an_import_a_run_on_it_is_fitted_in_the_same_way(repository, trained, tmp_path):
    log = tmp_path / "unknown.jsonl"
    write_log(log, outcome=False)
    code, text = import_log(repository, str(log), "--outcome", "last:is on")
    assert code == 0 and "16 success, 8 failure" in text, text
    config = str(repository / "configs" / "logs.yaml")
    code, text, _ = retrain(repository, "--config", config, "--dry-run")
    assert code == 0 and "environment.description='A room with lamps." in text, text


def test_a_judge_tells_the_outcomes_and_without_an_endpoint_the_message_says_so(
    repository, trained, tmp_path
):
    log = tmp_path / "unknown.jsonl"
    write_log(log, outcome=False)
    code, text = import_log(repository, str(log), "--outcome", "judge")
    assert code != 0 and "endpoint.url or endpoint.model is empty" in text

    def judge(body):
        ending = json.loads(body["messages"][1]["content"])["steps"][-1]["observation"]
        return Reply({"reasoning": "the lamp", "outcome": "success" if "is on" in ending else "failure"})

    with ChatServer(answer=judge) as server:
        endpoint = [f"endpoint.url={server.url}", "endpoint.model=judge"]
        code, text = import_log(repository, str(log), "--outcome", "judge", *endpoint)
    assert code == 0 and "16 success, 8 failure" in text and "Outcomes by the judge: 24 answers" in text, text
    code, text = import_log(repository, str(log), "--outcome", "field:metadata.sucess")
    assert code != 0 and "has an outcome in the field 'metadata.sucess'" in text


def test_logs_with_a_live_world_are_refused(repository):
    code, text, _ = retrain(repository, "--logs", "agent.jsonl", "environment.name=alfworld")
    assert code != 0 and "does not say how a live world starts its tasks" in text


def answer_for_the_room(body):
    """The answer of a language model that knows the room with lamps."""
    question = json.loads(body["messages"][1]["content"])
    if "predicted_next_state" in question:
        axes = ("causal_consistency", "diversity", "informativeness", "hallucination")
        return Reply({"rubric_scores": dict.fromkeys(axes, 2)})
    if "action" not in question:  # a judge of a made-up task, or who makes one up
        return Reply(
            {"reasoning": "it has a lamp", "possible": True}
            if "world" in question
            else {"instruction": "wait"}
        )
    number = question["task"].rpartition(" ")[2]
    state, reward = "Nothing happens.", 0
    if question["action"] == "wait":
        state = f"Lamp {number} is still off."
    elif question["action"] == f"press switch {number}":
        state, reward = f"Lamp {number} is on.", 1
    done = question["action"].startswith("press switch")
    return Reply({"reasoning": "its switch", "next_state": state, "reward": reward, "done": done})


def test_a_prompted_model_dreams_is_measured_and_counted_and_asked_once(repository, trained):
    with ChatServer(answer=answer_for_the_room) as server:
        words = ["--logs", "agent.jsonl", "--config", str(repository / "configs" / "prompted.yaml")]
        dream = [f"endpoint.url={server.url}", "endpoint.model=knower"]
        code, text, printed = retrain(repository, *words, dream=dream)
        assert code == 0, text
        calls = len(server.requests)
        assert calls > 0 and printed["costs"]["endpoint_calls"] == calls
        assert printed["costs"]["endpoint_prompt_tokens"] == 11 * calls
        judged = ["environment.name=recorded", *words[2:], *SMALL, "backbone.path=model", *dream]
        judged += ["--model", "config"]
        code, text, _ = run(repository, *judged, "fidelity.judged=3", verb=("fidelity",), small=False)
        assert code == 0 and "there is no live world" in text and "judge/consistency: 2.00 (n=3)" in text, (
            text
        )
        names = [stage.name for stage in Manifest.load(repository / "runs" / "latest").stages]
        assert names == ["validate", "experience_model", "judge"]
        code, text, printed = retrain(repository, *words, "fidelity.judged=3", dream=dream)
        assert code == 0 and "judge" in [stage["name"] for stage in printed["stages"]], text
        metrics = json.loads((repository / "runs" / "latest" / "metrics.json").read_text())
        assert metrics["judge/consistency"]["n"] == 3
        made_up = ["curriculum.enabled=true", "curriculum.judge=true"]
        code, text, printed = retrain(repository, *words, "seed=1", *made_up, dream=dream)
        assert code == 0, text
        assert printed["costs"]["endpoint_cached_calls"] > 0, "fidelity asks the same with another seed"
        stages = {stage["name"]: stage["reused"] for stage in printed["stages"]}
        assert not stages["experience_model"]
    metrics = json.loads((repository / "runs" / "latest" / "metrics.json").read_text())
    assert metrics["fidelity/next_state_exact"]["value"] == metrics["fidelity/reward_precision"]["value"] == 1
    assert not any(name.startswith("fidelity/calibration") for name in metrics)
    manifest = Manifest.load(repository / "runs" / "latest")
    assert [model.name.rpartition("-")[2] for model in manifest.models] == ["policy"]


def test_prompts_that_the_endpoint_refuses_are_named_where_the_gate_closes(repository, trained):
    with ChatServer(Reply(status=400, body="the prompt is too long for this model")) as server:
        words = ["--logs", "agent.jsonl", "--config", str(repository / "configs" / "prompted.yaml")]
        dream = [f"endpoint.url={server.url}", "endpoint.model=short"]
        code, text, _ = retrain(repository, *words, "fidelity.max_unparsable_rate=0.02", dream=dream)
    assert code == FidelityGateClosed.exit_code and "unparsable_rate is 1.000" in text, text
    assert "did not reply to" in text and "the prompt is too long for this model" in text


def test_without_an_iteration_of_rl_the_dreamed_policy_is_the_clone(repository, trained):
    code, text, printed = retrain(
        repository, "--logs", "agent.jsonl", "rl.dream.iterations=0", "rl.dream.check_every=0"
    )
    assert code == 0, text
    assert "synthetic_rl" in [stage["name"] for stage in printed["stages"] if not stage["reused"]]
    metrics = json.loads((repository / "runs" / "latest" / "metrics.json").read_text())
    assert metrics["synthetic_rl/dreamed_interactions"]["value"] == 0
    rates = [metrics[f"logs/{policy}/dreamed_success_rate"]["value"] for policy in ("cloned", "dreamed")]
    assert rates[0] == rates[1]


LIVE = [
    *("environment.name=own", "environment.max_steps=3"),
    "environment.own.adapter=components.environments.template:TemplateAdapter",
]
"""A world that can be played; its texts are others than the log's."""


@pytest.fixture(scope="module")
def live_tasks(repository):
    """Recorded tasks of the live world."""
    counts = ["data.train_tasks=3", "data.fidelity_tasks=2", "data.fidelity_worlds=0"]
    code, text, _ = run(repository, *LIVE, *counts, verb=("collect",), small=False)
    assert code == 0, text


def test_both_policies_play_later_in_a_live_world(repository, trained, live_tasks):
    printed, _ = trained
    words = ["--run", printed["run"], "evaluation.tasks=2", "--json", str(repository / "live.json")]
    code, text, _ = run(repository, *LIVE, *words, verb=("evaluate",), small=False)
    assert code == 0, text
    live = json.loads((repository / "live.json").read_text())
    assert list(live["policies"]) == ["cloned", "dreamed"] and live["real_interactions"] > 0


def refine(repository, of_run, *words):
    """Run `dreamgym refine`; return exit code and output."""
    code, text, _ = run(repository, of_run, *words, verb=("refine",), small=False)
    return code, text


def test_the_run_goes_on_in_the_live_world_down_to_the_promotion_gate(repository, trained, live_tasks):
    printed, _ = trained
    small = [
        *("evaluation.tasks=2", "fidelity.policy_tasks=2", "fidelity.max_batches=1"),
        *("rl.real.iterations=1", "rl.real.tasks=2", "rl.real.num_generations=2", "rl.real.budget=20"),
    ]
    code, text = refine(repository, printed["run"], *LIVE, *small, "fidelity.min_rollout_agreement=0")
    assert code == PROMOTION_REFUSED, text
    latest = repository / "runs" / "latest"
    manifest = Manifest.load(latest)
    assert manifest.flow == "refine" and manifest.continues == printed["run"] != manifest.run_id
    assert manifest.config["tracking"]["experiment"] == "dreamgym-logs-own"
    newest = Manifest.load(find_run_on_logs(repository, "latest"))
    assert newest.flow == "retrain", "`refine latest` can be repeated: it is never a refinement"
    report = (latest / "report.md").read_text()
    assert "reproduce" not in report and "another seed" not in report
    stages = {stage.name: stage for stage in manifest.stages}
    earlier = {stage.name: stage for stage in Manifest.load(repository / "runs" / printed["run"]).stages}
    assert all(stages[name].key == earlier[name].key for name in TAKEN)
    assert all(stages[name].reused for name in TAKEN)
    assert list(stages)[len(TAKEN) :] == ["check_dreamed", "sim_to_real", "evaluate"]
    metrics = json.loads((latest / "metrics.json").read_text())
    for policy in ("cloned", "dreamed", "refined"):
        assert metrics[f"evaluate/{policy}/success_rate"]["n"] == 2
    assert metrics["sim_to_real/real_interactions"]["value"] == manifest.costs.real_interactions > 0
    assert "No live world was at hand" not in (latest / "report.md").read_text()


def test_a_refinement_names_what_it_cannot_go_on_with(repository, trained, live_tasks):
    printed, _ = trained
    code, text = refine(repository, printed["run"])
    assert code == 2 and "Expected a world that can be played" in text, text
    code, text = refine(repository, "20200101-000000-0000", *LIVE)
    assert code != 0 and "20200101-000000-0000" in text and "Traceback" not in text
    code, text = refine(repository, printed["run"], *LIVE, "evaluation.tasks=2")
    assert code == 2 and "fidelity.policy_tasks=48" in text and "has 3 training tasks" in text, text
    other = repository / "runs" / "20200102-000000-0000"
    shutil.copytree(repository / "runs" / printed["run"], other)
    manifest = Manifest.load(other)
    manifest.status = "failed"
    manifest.save(other)
    code, text = refine(repository, other.name, *LIVE)
    shutil.rmtree(other)
    assert code != 0 and "is failed, of the environment recorded" in text, text
