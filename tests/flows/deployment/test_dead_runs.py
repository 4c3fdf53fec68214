"""A run ended by SIGKILL is closed by the next one in its workspace; a live one is not."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys

import pytest

from components.config import load_config
from components.tracking.dead_runs import close_dead_runs
from components.tracking.manifest import Manifest
from components.tracking.mlflow_adapter.tracker import Tracker
from components.tracking.process import OwnProcess, is_dead, this_process
from components.trajectories.dvc import snapshots
from flows.jobs.pretrain_run import pretraining_run
from flows.run.pipeline_run import Run

HANGS = """
import sys, time
from pathlib import Path
from components.config import load_config
from flows.run.pipeline_run import Run
run = Run(load_config(), Path(sys.argv[1]))
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
    subprocess.run(
        ["git", "-C", str(tmp_path), *identity, "commit", "-q", "--allow-empty", "-m", "first"], check=True
    )
    return tmp_path


def test_a_killed_run_is_closed_by_the_next_and_a_live_one_is_not(root):
    with subprocess.Popen(
        [sys.executable, "-c", HANGS, str(root)], stdout=subprocess.PIPE, text=True
    ) as child:
        killed = root / "runs" / child.stdout.readline().strip()
        beside = Run(load_config(), root)
        beside.start("retrain")
        assert {Manifest.load(run).status for run in (killed, beside.directory)} == {"running"}, (
            "both are alive"
        )
        os.kill(child.pid, signal.SIGKILL)
    after = Run(load_config(), root)
    after.start("retrain")
    found = Manifest.load(killed)
    assert (found.status, Manifest.load(beside.directory).status, after.manifest.status) == (
        "killed",
        "running",
        "running",
    )
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
    Run(load_config(), root).start("retrain")
    assert Manifest.load(beside.directory).status == "killed", (
        "a run that was deleted in MLflow is no reason not to begin the next"
    )


def test_a_run_that_was_killed_before_mlflow_knew_its_end_is_finished_there(root):
    program = HANGS.replace("print(", "run.metrics = {}; run.conclude(); print(")
    with subprocess.Popen(
        [sys.executable, "-c", program, str(root)], stdout=subprocess.PIPE, text=True
    ) as child:
        killed = root / "runs" / child.stdout.readline().strip()
        Run(load_config(), root).start("retrain")
        found = Manifest.load(killed)
        os.kill(child.pid, signal.SIGKILL)
    after = Run(load_config(), root)
    after.start("retrain")
    client = after.tracker.client
    assert (
        client.get_run(found.mlflow_run_id).info.status == "FINISHED"
        and Manifest.load(killed).status == "finished"
    )
    assert "manifest.json" in {file.path for file in client.list_artifacts(found.mlflow_run_id)}


PRETRAINS = """
import sys, time
from pathlib import Path
from components.config import Config
from flows.jobs.pretrain_run import pretraining_run
root = Path(sys.argv[1])
with pretraining_run(Config(), root, root / "work") as log_curves:
    log_curves(0, {"pretrain/loss": 3.0})
    print("began", flush=True)
    time.sleep(600)
"""
EVALUATES = """
import sys, time
from pathlib import Path
from components.config import TrackingConfig
from components.tracking.mlflow_adapter.tracker import Tracker
tracker = Tracker(TrackingConfig(), Path(sys.argv[1]))
tracker.start_stage(tracker.start_run("evaluate champion"), "games")
print("began", flush=True)
time.sleep(600)
"""


def _begin(root, *programs):
    """Start the programs, and return their processes when each has printed that it started."""
    children = [
        subprocess.Popen([sys.executable, "-c", program, str(root)], stdout=subprocess.PIPE, text=True)
        for program in programs
    ]
    assert {child.stdout.readline() for child in children} == {"began\n"}
    return children


def test_a_killed_pretraining_or_evaluation_is_closed_by_the_next_command_and_a_live_one_is_not(
    tmp_path, monkeypatch
):
    """They have no manifest: the tags of their MLflow runs name the process."""
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    *killed, beside = _begin(tmp_path, PRETRAINS, EVALUATES, PRETRAINS)
    try:
        for child in killed:
            child.kill()
            child.wait()
        with pretraining_run(load_config(), tmp_path, tmp_path / "work"):
            pass
        tracker = Tracker(load_config().tracking, tmp_path)
        runs = {run.info.run_id: run for run in tracker.client.search_runs([tracker.experiment_id])}
        status = {run.info.run_id: run.info.status for run in runs.values()}
        processes = {
            run_id: OwnProcess.from_text(run.data.tags["dreamgym.process"]).pid
            for run_id, run in runs.items()
            if "dreamgym.process" in run.data.tags
        }
        dead = [run_id for run_id, pid in processes.items() if pid in {child.pid for child in killed}]
        assert [status[run_id] for run_id in dead] == ["KILLED", "KILLED"]
        assert all("The same command" in runs[run_id].data.tags["mlflow.note.content"] for run_id in dead)
        assert [status[run_id] for run_id, pid in processes.items() if pid == beside.pid] == ["RUNNING"]
        assert sorted(status.values()) == ["FINISHED", "KILLED", "KILLED", "KILLED", "RUNNING"], "a stage too"
    finally:
        beside.kill()
        beside.wait()


def test_a_run_of_another_clone_at_the_same_server_is_left_alone(tmp_path, monkeypatch):
    store = tmp_path / "store.db"
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{store}")
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
    gone = this_process().model_copy(update={"started": 1.0})
    own, other = (
        Tracker(load_config().tracking, tmp_path / "one"),
        Tracker(load_config().tracking, tmp_path / "two"),
    )
    own.set_tags(own.start_run("evaluate champion"), {"dreamgym.process": gone.text})
    close_dead_runs(tmp_path / "two" / "runs", other)
    assert len(other.running()) == 1
    close_dead_runs(tmp_path / "one" / "runs", own)
    assert own.running() == {}


def test_only_a_process_of_this_machine_is_called_dead():
    own = this_process()
    assert not is_dead(own)
    assert is_dead(own.model_copy(update={"started": own.started - 60})), "its id was given to another"
    assert not is_dead(own.model_copy(update={"started": own.started - 60, "host": "elsewhere"}))
