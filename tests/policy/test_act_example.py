"""The example plays a real game with a policy behind a server, in at most 40 lines."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from chat_server import ChatServer, Reply

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


def test_the_example_is_short():
    assert len(EXAMPLE.read_text().splitlines()) <= 40
