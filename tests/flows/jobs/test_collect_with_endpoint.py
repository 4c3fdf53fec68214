"""`dreamgym collect` and `evaluate --policy endpoint`: a chat server plays ALFWorld's engine, and is counted.

The server answers by a script: a model that can play is not at hand. A real model behind a real server plays
in tests/policy/test_endpoint_player.py.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from chat_server import ChatServer, Reply
from prefect.logging import disable_run_logger

from components.config import load_config
from components.environments import make_adapter
from components.environments.protocol import NO_ACTION
from components.errors import EndpointError
from components.trajectories.store import DataLayout, read_transitions
from flows.jobs.collect import play_endpoint_episodes

ROOT = Path(__file__).parents[3]
AUTHOR = ["-c", "user.name=a", "-c", "user.email=a@example.org"]
PROSE = "Sure, I will look around."
FEW = ["data.train_tasks=3", "data.fidelity_tasks=2", "data.fidelity_worlds=1", "environment.workers=1"]


@pytest.fixture
def clone(tmp_path):
    """An empty git repository with DVC: collecting needs no earlier data."""
    subprocess.run(["git", "init", "-q", str(tmp_path)], check=True)
    shutil.copy(ROOT / "constraints.txt", tmp_path)
    subprocess.run([sys.executable, "-m", "dvc", "init", "-q"], cwd=tmp_path, check=True)
    subprocess.run(["git", *AUTHOR, "commit", "-q", "-m", "empty"], cwd=tmp_path, check=True)
    return tmp_path


def collect(clone, *arguments, verb="collect"):
    environment = {**os.environ, "COLUMNS": "200", "PREFECT_HOME": str(clone / ".dreamgym" / "prefect")}
    command = [verb, "--policy", "endpoint", "--root", str(clone), *FEW, *arguments]
    return subprocess.run(
        [sys.executable, "-m", "flows.cli", *command],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        timeout=500,
    )


def test_an_endpoint_plays_each_task_once_and_its_words_are_recorded(clone):
    def answer(body):
        turns = len(body["messages"]) // 2
        return Reply(f"Thought: turn {turns}\nAction: look" if turns < 3 else PROSE)

    with ChatServer(answer=answer) as server:
        few = [f"endpoint.url={server.url}", "endpoint.model=m", "environment.max_steps=4"]
        done = collect(clone, *few)
        scored = collect(clone, *few, "evaluation.tasks=2", "--json", verb="evaluate")
    assert scored.returncode == 0, scored.stdout + scored.stderr
    found = json.loads(scored.stdout)
    endpoint = {name: estimate["value"] for name, estimate in found["endpoint"].items()}
    assert endpoint == {
        "endpoint_calls": 8,
        "endpoint_cached_calls": 0,
        "endpoint_prompt_tokens": 8 * 11,
        "endpoint_completion_tokens": 8 * 3,
        "malformed_replies": 0.5,
        "cut_replies": 0,
    }
    assert "88 tokens read and 24 written in 8 requests; 50.0% of the replies held no action" in scored.stderr
    assert found["policy"] == "m" and found["real_interactions"] == 8
    assert done.returncode == 0, done.stdout + done.stderr
    layout = DataLayout.of(clone, "alfworld")
    steps = {name: read_transitions(layout.trajectories(name)) for name in ("train", "fidelity")}
    assert {name: len(own) for name, own in steps.items()} == {"train": 12, "fidelity": 12}
    assert len({step.task_id for step in steps["train"]}) == 3
    for step in steps["train"] + steps["fidelity"]:
        said = (f"turn {step.step + 1}", "look")
        assert (step.thought, step.action) == (said if step.step < 2 else (PROSE, NO_ACTION))
        assert (step.behaviour, step.policy_version) == ("policy", "m") and step.reasoning


def test_a_missing_address_is_refused(clone):
    done = collect(clone)
    assert done.returncode == 2
    assert "endpoint.url or endpoint.model is empty" in " ".join((done.stdout + done.stderr).split())


def test_tasks_that_an_endpoint_has_played_are_not_paid_twice(tmp_path, monkeypatch):
    """The endpoint refuses all requests after some tasks; typed again, the others are played."""
    monkeypatch.setattr("flows.run.games.endpoint_games.ROWS", 2)
    refused, played = [True], []

    def answer(body):
        if refused and len(played) == 2:
            return Reply(status=401)
        played.append(body["messages"][-1]["content"])
        return Reply("Thought: t\nAction: add")

    with ChatServer(answer=answer) as server:
        overrides = [
            "environment.name=gymnasium",
            "environment.gymnasium.factory=text_worlds:Counting",
            "environment.max_steps=1",
            f"endpoint.url={server.url}",
            "endpoint.model=m",
            "experience_model.premise=false",
        ]
        config = load_config(None, overrides)
        tasks = make_adapter(config.environment).tasks("train", 4, 0)
        with disable_run_logger(), pytest.raises(EndpointError):
            play_endpoint_episodes.fn(config, tmp_path / "train", tasks)
        refused.clear()
        played.clear()
        with disable_run_logger():
            resumed = play_endpoint_episodes.fn(config, tmp_path / "train", tasks)
            assert len(played) == 2, "two tasks were played before"
            assert resumed == play_endpoint_episodes.fn(config, tmp_path / "other", tasks)
    assert [episode.task for episode in resumed] == tasks and all(one.steps for one in resumed)
