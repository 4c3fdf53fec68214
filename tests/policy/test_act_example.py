"""The example plays a real game with a policy behind a server, in at most 40 lines."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
import trl
from chat_server import ChatServer, Reply
from foreign import make_checkpoint
from ports import free_port

from components.language.backbone import load_backbone, save_model
from flows.run.models.policy_export import write_policy

ROOT = Path(__file__).parents[2]
EXAMPLE = ROOT / "examples" / "act.py"


@pytest.mark.engine
def test_the_example_plays_a_game_over_chat_completions(tmp_path):
    (tmp_path / "dreamgym.json").write_text(json.dumps({"format": "chat", "system": "A house."}))
    with ChatServer(Reply("Thought: look around\nAction: look")) as server:
        command = [sys.executable, str(EXAMPLE), str(tmp_path), server.url]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300, check=True)
        requests = server.requests
    assert len(requests) == 20 and done.stdout.endswith("no success\n")
    assert done.stdout.startswith("Task: ") and done.stdout.count("Observation: Looked around") == 20
    assert [message["role"] for message in requests[1]["messages"]] == ["system", "user", "assistant", "user"]
    assert requests[0]["messages"][0]["content"] == "A house."


@pytest.mark.services
def test_an_exported_chat_policy_behind_transformers_own_server_acts(tmp_path):
    """A random Llama with Qwen3.5's template, which the saved policy replaces by one without thinking."""
    from transformers.cli.serve import Serve

    thinking = (Path(trl.__file__).parent / "chat_templates" / "qwen3_5_think.jinja").read_text()
    base = make_checkpoint(tmp_path / "base", "llama", template=thinking, max_position_embeddings=8192)
    stage, exported = tmp_path / "stage", tmp_path / "exported"
    save_model(*load_backbone(base, system="A house."), stage)
    write_policy(stage, exported)
    port = free_port()
    server = Serve(force_model=str(exported), host="127.0.0.1", port=port, device="cpu", non_blocking=True)
    try:
        command = [sys.executable, str(EXAMPLE), str(exported), f"http://127.0.0.1:{port}/v1"]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=500)
    finally:
        server.kill_server()
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("Task: ") and done.stdout.endswith("success\n")
    assert done.stdout.count("Observation: ") > 1


def test_the_example_is_short():
    assert len(EXAMPLE.read_text().splitlines()) <= 40
