"""A run that SIGKILL ended is closed by the next one in its workspace; one that goes on beside it is not."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys

import pytest

from components.config import load_config
from components.tracking.manifest import Manifest
from components.tracking.process import is_dead, this_process
from components.trajectories import snapshots
from flows.workspace import Workspace

HANGS = """
import sys, time
from pathlib import Path
from components.config import load_config
from flows.workspace import Workspace
run = Workspace(load_config(), Path(sys.argv[1]))
run.start("retrain")
run.tracker.start_stage(run.parent, "validate")
print(run.directory.name, flush=True)
time.sleep(600)
"""


@pytest.fixture
def root(tmp_path):
    """A repository with a commit and a version of data/."""
    identity = ["-c", "user.name=t", "-c", "user.email=t@localhost"]
    subprocess.run(["git", "init", "-q", str(tmp_path)], check=True)
    (tmp_path / "data" / "alfworld" / "tasks").mkdir(parents=True)
    (tmp_path / "data" / "alfworld" / "tasks" / "train.parquet").write_text("tasks")
    snapshots.snapshot(tmp_path)
    subprocess.run(["git", "-C", str(tmp_path), *identity, "commit", "-q", "--allow-empty", "-m", "first"], check=True)
    return tmp_path


def test_a_killed_run_is_closed_by_the_next_and_one_that_goes_on_is_not(root):
    with subprocess.Popen([sys.executable, "-c", HANGS, str(root)], stdout=subprocess.PIPE, text=True) as child:
        killed = root / "runs" / child.stdout.readline().strip()
        beside = Workspace(load_config(), root)
        beside.start("retrain")
        assert {Manifest.load(run).status for run in (killed, beside.directory)} == {"running"}, "both are alive"
        os.kill(child.pid, signal.SIGKILL)
    after = Workspace(load_config(), root)
    after.start("retrain")
    found = Manifest.load(killed)
    assert (found.status, Manifest.load(beside.directory).status, after.manifest.status) == ("killed", "running", "running")
    client = after.tracker.client
    runs = client.search_runs([after.tracker.experiment_id])
    status = {run.info.run_id: run.info.status for run in runs}
    assert status.pop(found.mlflow_run_id) == "KILLED"
    assert sorted(status.values()) == ["KILLED", "RUNNING", "RUNNING"], "its stage too, and no other run"
    assert "dreamgym resume" in client.get_run(found.mlflow_run_id).data.tags["mlflow.note.content"]
    client.delete_run(beside.parent)
    path = beside.directory / "manifest.json"
    values = json.loads(path.read_text())
    path.write_text(json.dumps(values | {"process": found.process.model_dump()}))
    Workspace(load_config(), root).start("retrain")
    assert Manifest.load(beside.directory).status == "killed", "a run that was deleted in MLflow is no reason not to begin the next"


def test_a_run_that_was_killed_before_mlflow_knew_its_end_is_finished_there(root):
    program = HANGS.replace("print(", "run.metrics = {}; run.conclude(); print(")
    with subprocess.Popen([sys.executable, "-c", program, str(root)], stdout=subprocess.PIPE, text=True) as child:
        killed = root / "runs" / child.stdout.readline().strip()
        Workspace(load_config(), root).start("retrain")
        found = Manifest.load(killed)
        os.kill(child.pid, signal.SIGKILL)
    after = Workspace(load_config(), root)
    after.start("retrain")
    client = after.tracker.client
    assert client.get_run(found.mlflow_run_id).info.status == "FINISHED" and Manifest.load(killed).status == "finished"
    assert "manifest.json" in {file.path for file in client.list_artifacts(found.mlflow_run_id)}


def test_only_a_process_of_this_machine_is_called_dead():
    own = this_process()
    assert not is_dead(own)
    assert is_dead(own.model_copy(update={"started": own.started - 60})), "its id was given to another"
    assert not is_dead(own.model_copy(update={"started": own.started - 60, "host": "elsewhere"}))
