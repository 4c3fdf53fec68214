"""`dreamgym retrain --logs`: from a log to a report without a live world, and what a person decides after it."""

from __future__ import annotations

import json
import subprocess

import pytest
from foreign import CHATML, make_checkpoint
from small_job import command_of, environment_of, make_clone

from components.tracking.manifest import Manifest

LAMPS = 24
"""Tasks of the log."""
SMALL = [
    *("experience_model.epochs=1", "experience_model.resamples=1"),
    *("fidelity.min_next_state_exact=0", "fidelity.min_reward_precision=0", "fidelity.max_unparsable_rate=1"),
    *("cloning.epochs=1", "rl.tasks=2", "rl.num_generations=2", "rl.dream.iterations=1"),
    *("evaluation.tasks=4", "tracking.dvc_experiment=false", "fidelity.tasks=2"),
]


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


def run(repository, *words):
    return subprocess.run(
        command_of(*words),
        cwd=repository,
        env=environment_of(repository),
        capture_output=True,
        text=True,
        timeout=550,
    )


def retrain(repository, *words):
    return run(repository, "retrain", "backbone.path=model", *SMALL, *words)


@pytest.fixture(scope="module")
def trained(repository):
    done = retrain(repository, "--logs", "agent.jsonl", "--json")
    assert done.returncode == 0, done.stdout + done.stderr
    return json.loads(done.stdout), done.stderr


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
    done = retrain(repository, "--logs", "agent.jsonl", "--json")
    assert done.returncode == 0, done.stderr
    assert all(stage["reused"] for stage in json.loads(done.stdout)["stages"])


def test_a_person_promotes_the_policy(repository, trained):
    config = ["--config", str(repository / "runs" / "latest" / "config.json")]
    blank = run(repository, "promote", "latest", "--by", " ", "--reason", "x", *config)
    assert blank.returncode != 0 and "Expected the name of the person" in blank.stderr
    done = run(
        repository, "promote", "latest", "--by", "Ada", "--reason", "read ten episodes", "--json", *config
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["champion"] == "1"
    again = run(repository, "promote", "latest", "--by", "Ada", "--reason", "again", *config)
    assert again.returncode != 0 and "is the champion already" in again.stderr


def test_logs_without_a_success_are_refused_before_the_first_stage(repository, tmp_path):
    write_log(tmp_path / "unknown.jsonl", outcome=False)
    done = retrain(repository, "--logs", str(tmp_path / "unknown.jsonl"))
    assert done.returncode != 0 and "has no episode to clone" in done.stderr and "--outcome" in done.stderr
    told = retrain(
        repository,
        "--logs",
        str(tmp_path / "unknown.jsonl"),
        "--outcome",
        "last:is on",
        "--dry-run",
        "--json",
    )
    assert told.returncode == 0, told.stderr


def test_logs_with_a_live_world_are_refused(repository):
    done = retrain(repository, "--logs", "agent.jsonl", "environment.name=alfworld")
    assert done.returncode != 0 and "does not say how a live world starts its tasks" in done.stderr
