"""A scheduled flow whose data is on a server that does not answer at first is retried and succeeds."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys

import pytest
from ports import free_port
from prefect_server import shared_server

from components.config import load_config
from components.trajectories.dvc import snapshots
from flows.checks.preflight import missing_data

FLOW = """
import http.server, json, sys, threading
from functools import partial
from flows import deployments

place, port = sys.argv[1], int(sys.argv[2])
tries, verdict = [], deployments._server_did_not_answer

def start_the_server(task, run, state):
    tries.append(str(state.message))
    again = verdict(task, run, state)
    if again and len(tries) == 1:
        handler = partial(http.server.SimpleHTTPRequestHandler, directory=place)
        server = http.server.ThreadingHTTPServer(("127.0.0.1", port), handler)
        threading.Thread(target=server.serve_forever, daemon=True).start()
    return again

quick = {"retry_delay_seconds": [0, 0, 0], "retry_jitter_factor": 0.0, "retry_condition_fn": start_the_server}
deployments._pull_data = deployments._pull_data.with_options(**quick)
try:
    found = deployments.watch_data("config.yaml")
except Exception as error:
    found = f"{type(error).__name__}: {error}"
print(json.dumps({"tries": tries, "found": found}))
"""


@pytest.fixture
def clone(tmp_path):
    """A clone without data whose remote is a server that is not running yet, and the server's files."""
    root, port = tmp_path / "clone", free_port()
    subprocess.run(["git", "init", "-q", str(root)], check=True)
    for name in (*missing_data(root, load_config(), backbone=False), "config.yaml"):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text("seed: 0")
    snapshots.snapshot(root)
    snapshots.push(root)
    (root / ".dreamgym" / "dvc-remote").rename(tmp_path / "served")
    for place in ("data", ".dvc/cache"):
        shutil.rmtree(root / place)
    for command in (
        ["remote", "add", "web", f"http://127.0.0.1:{port}"],
        ["remote", "default", "--local", "web"],
    ):
        subprocess.run([sys.executable, "-m", "dvc", *command, "-q"], cwd=root, check=True)
    return root, tmp_path / "served", port


@pytest.mark.slow
def test_a_pull_from_a_server_that_does_not_answer_is_retried(clone, monkeypatch):
    root, served, port = clone
    monkeypatch.setenv("PREFECT_API_URL", shared_server())
    command = [sys.executable, "-c", FLOW, str(served), str(port)]
    done = subprocess.run(command, cwd=root, capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout.splitlines()[-1])
    assert len(found["tries"]) == 1 and "web (cannot connect to 127.0.0.1" in found["tries"][0]
    assert found["found"] == snapshots.part_hash(root, "alfworld/trajectories")
    assert not missing_data(root, load_config(), backbone=False)
