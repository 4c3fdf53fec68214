"""A flow run whose process was killed becomes Crashed on a real Prefect server; a live one does not."""

from __future__ import annotations

import os
import platform
import signal
import subprocess
import sys

import httpx
import pytest
from prefect import flow, get_client
from prefect.settings import PREFECT_API_URL, temporary_settings
from prefect.states import Running
from prefect_server import shared_server
from small_job import ROOT

from components.config import load_config
from components.tracking.manifest import Manifest
from components.tracking.mlflow_adapter.tracker import Tracker
from components.tracking.process import OwnProcess, this_process
from components.tracking.run_environment import collect_environment
from flows.dead_flow_runs import crash_dead_flow_runs, process_of
from flows.jobs.collect import collect_data

HANGS = """
import sys, time
from prefect import flow, runtime, task
from flows.dead_flow_runs import tag_flow_runs
@task
def waits():
    print(runtime.flow_run.root_flow_run_id, flush=True)
    time.sleep(600)
@flow
def stage():
    waits()
@flow
def job():
    stage()
if sys.argv[1] == "tagged":
    tag_flow_runs()
    tag_flow_runs()
job()
"""


class Prefect:
    """The HTTP interface of a Prefect server."""

    def __init__(self, url):
        self.url = url

    def states(self, flow_run):
        """Return the names of the states of the flow run, its subflow, and the tasks of both."""

        def post(path, **body):
            return httpx.post(f"{self.url}{path}", json=body, timeout=30).raise_for_status().json()

        (own,) = post("/flow_runs/filter", flow_runs={"id": {"any_": [flow_run]}})
        (below,) = post("/flow_runs/filter", flow_runs={"parent_flow_run_id": {"any_": [flow_run]}})
        tasks = post("/task_runs/filter", flow_runs={"id": {"any_": [flow_run, below["id"]]}})
        return {run["name"]: run["state_name"] for run in (own, below, *tasks)}


@pytest.fixture(scope="module")
def prefect():
    """The shared server."""
    return Prefect(shared_server())


def start(url, how):
    """Start a job that hangs in a task of a subflow; return it and its flow run."""
    environment = os.environ | {"PREFECT_API_URL": url}
    child = subprocess.Popen(
        [sys.executable, "-c", HANGS, how], env=environment, stdout=subprocess.PIPE, text=True
    )
    return child, child.stdout.readline().strip()


@pytest.mark.timeout(300)
def test_a_killed_flow_run_is_crashed_with_its_subflows_and_a_live_one_is_not(prefect, tmp_path):
    children = [start(prefect.url, "tagged"), start(prefect.url, "tagged"), start(prefect.url, "untagged")]
    (killed, dead), (beside, alive), (stranger, foreign) = children
    for child in (killed, stranger):
        child.kill()
        child.wait()
    try:
        assert set(prefect.states(dead).values()) == {"Running"}, "as it would stay"
        assert len(crash_dead_flow_runs(tmp_path / "runs", prefect.url)) == 1
        assert set(prefect.states(dead).values()) == {"Crashed"} and len(prefect.states(dead)) >= 3
        assert set(prefect.states(alive).values()) == {"Running"}
        assert set(prefect.states(foreign).values()) == {"Running"}, "of whom nothing is known"
        assert crash_dead_flow_runs(tmp_path / "runs", prefect.url) == [], "once"
        _write_manifest(
            tmp_path / "runs", foreign, OwnProcess(host=platform.node(), pid=stranger.pid, started=1.0)
        )
        assert len(crash_dead_flow_runs(tmp_path / "runs", prefect.url)) == 1
        assert set(prefect.states(foreign).values()) == {"Crashed"}, "its manifest names its process"
    finally:
        os.kill(beside.pid, signal.SIGKILL)
        beside.wait()


COUNTING = [
    "environment.name=gymnasium",
    "environment.gymnasium.factory=text_worlds:Counting",
    "data.expert=0",
]
COUNTING += ["data.noisy=0", "data.near_miss=0"]
COUNTING += ["data.train_tasks=1", "data.fidelity_tasks=1", "data.fidelity_worlds=0", "evaluation.tasks=1"]


@pytest.mark.timeout(300)
def test_collecting_ends_what_was_killed_in_this_clone_in_prefect_and_in_mlflow(
    prefect, tmp_path, monkeypatch
):
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    for command in (
        ["git", "init", "-q"],
        [sys.executable, "-m", "dvc", "init", "-q"],
        ["git", "commit", "-qm", "first"],
    ):
        identity = {
            f"GIT_{role}_{what}": "t@localhost"
            for role in ("AUTHOR", "COMMITTER")
            for what in ("NAME", "EMAIL")
        }
        subprocess.run(command, cwd=tmp_path, env=os.environ | identity, check=True)
    config = load_config(None, COUNTING)
    tracker = Tracker(config.tracking, tmp_path)
    run = tracker.start_run("pretrain, seed 0")
    gone = this_process().model_copy(update={"started": 1.0})
    tracker.set_tags(run, {"dreamgym.process": gone.text})
    with temporary_settings({PREFECT_API_URL: prefect.url}):
        with get_client(sync_client=True) as client:
            dead = client.create_flow_run(
                flow(lambda: None, name="pretrain"), tags=[f"process:{gone.text}"], state=Running()
            )
        collect_data(config, tmp_path)
        with get_client(sync_client=True) as client:
            assert client.read_flow_run(dead.id).state_name == "Crashed"
    assert tracker.client.get_run(run).info.status == "KILLED"


def _write_manifest(runs, flow_run, process):
    """Write the manifest of a run of an earlier version, whose flow runs have no tag."""
    directory = runs / "20260101-000000-0000"
    directory.mkdir(parents=True)
    environment = collect_environment(ROOT, directory, threads=1)
    manifest = Manifest(run_id=directory.name, environment=environment, config={}, process=process)
    manifest.prefect_flow_run_id = flow_run
    manifest.save(directory)


def test_a_server_that_does_not_answer_is_no_failure(tmp_path, caplog):
    assert crash_dead_flow_runs(tmp_path, "http://127.0.0.1:9/api") == []
    assert "could not be marked Crashed" in caplog.text


def test_a_process_is_read_back_from_its_tag():
    own = this_process()
    tag = f"process:{own.host}:{own.pid}:{own.started:.2f}"
    found = process_of(["dreamgym", tag])
    assert (found.host, found.pid) == (own.host, own.pid) and abs(found.started - own.started) < 0.01
    assert process_of(["dreamgym", "process:host:x:y"]) is None
