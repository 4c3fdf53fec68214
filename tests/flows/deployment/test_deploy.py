"""Deployments on a real Prefect server with a real worker: schedules, new data, killed runs."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import httpx
import pytest
from ports import free_port
from prefect_server import await_health
from small_job import ANYHOW, ROOT, SMALL, command_of, last_of_each, make_clone

from components.trajectories.dvc.snapshots import push, snapshot
from flows.settings import DEFAULTS

OVERRIDES = re.compile(r"overrides: \[.*\]")
EVERY_TWENTY_SECONDS = "- interval: 20"


class Server:
    """The HTTP interface of a Prefect server, and the command line in a clone that uses it."""

    def __init__(self, clone: Path, url: str, home: Path) -> None:
        self.clone, self.url = clone, url
        self.environment = {
            **os.environ,
            **DEFAULTS,
            "PREFECT_HOME": str(home),
            "PREFECT_API_URL": url,
            "PYTHONPATH": str(clone),
        }
        self.environment |= {"COLUMNS": "200", "PREFECT_WORKER_QUERY_SECONDS": "2"}

    def post(self, path: str, **body: Any) -> Any:
        for _ in range(20):
            answer = httpx.post(f"{self.url}{path}", json=body, timeout=30)
            if answer.status_code != 503:  # "database is locked": SQLite while others write
                break
            time.sleep(0.5)
        return answer.raise_for_status().json()

    def set_state(self, run: str, name: str) -> Any:
        return self.post(f"/flow_runs/{run}/set_state", state={"type": name})

    def dreamgym(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            command_of(*arguments),
            cwd=self.clone,
            env=self.environment,
            capture_output=True,
            text=True,
            timeout=300,
        )

    def start(self, *arguments: str) -> subprocess.Popen[bytes]:
        log = (self.clone.parent / f"{arguments[0]}.log").open("wb")
        command = [sys.executable, "-m", "prefect", *arguments]
        return subprocess.Popen(
            command, cwd=self.clone, env=self.environment, stdout=log, stderr=log, start_new_session=True
        )

    def runs(self, deployment: str) -> list[dict[str, Any]]:
        return self.post(
            "/flow_runs/filter", deployments={"name": {"any_": [deployment]}}, sort="EXPECTED_START_TIME_ASC"
        )

    def await_run(
        self, deployment: str, wanted: Callable[[dict[str, Any]], bool], seconds: float
    ) -> dict[str, Any]:
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            with contextlib.suppress(httpx.TimeoutException):  # a busy machine
                for run in self.runs(deployment):
                    if wanted(run):
                        return run
            time.sleep(1)
        seen = [(run["state_name"], run["state"]["message"]) for run in self.runs(deployment)]
        pytest.fail(f"no such run of {deployment} within {seconds:g} s; there are {seen}")


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    """A server, a worker, and a clone whose data is watched every 20 s and whose retraining fails at once."""
    place = tmp_path_factory.mktemp("deployed")
    clone = make_clone(place / "clone")
    described = (clone / "prefect.yaml").read_text().replace('- cron: "*/15 * * * *"', EVERY_TWENTY_SECONDS)
    (clone / "prefect.yaml").write_text(OVERRIDES.sub("overrides: [seed=x]", described))
    port = free_port()
    found = Server(clone, f"http://127.0.0.1:{port}/api", place / "home")
    children = [found.start("server", "start", "--host", "127.0.0.1", "--port", str(port))]
    await_health(found.url, 240)
    yield found
    children += getattr(found, "children", [])
    for child in reversed(children):
        os.killpg(child.pid, signal.SIGTERM)
    for child in children:
        try:
            child.wait(20)
        except subprocess.TimeoutExpired:  # a worker may outlive SIGTERM
            os.killpg(child.pid, signal.SIGKILL)


@pytest.fixture(scope="module")
def deployed(server):
    """The first deploy, with the schedule of watch-data on."""
    done = server.dreamgym("deploy", "--on", "watch-data")
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_without_a_server_it_says_what_to_type(tmp_path):
    environment = {name: value for name, value in os.environ.items() if name != "PREFECT_API_URL"} | {
        "PYTHONPATH": str(ROOT)
    }
    command = command_of("deploy", "--root", str(ROOT))
    environment["PREFECT_HOME"] = str(tmp_path)
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=120)
    assert done.returncode == 2 and "export PREFECT_API_URL" in done.stderr.replace("\n", " ")
    environment["PREFECT_API_URL"] = "http://127.0.0.1:9/api"
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=120)
    assert (
        done.returncode == 1
        and "does not answer" in done.stderr
        and "dreamgym ui" in done.stderr.replace("\n", " ")
    )


def test_a_deploy_creates_everything_and_a_second_changes_nothing(server, deployed):
    assert [name for name in ("retrain", "study", "watch-data") if name in deployed] == [
        "retrain",
        "study",
        "watch-data",
    ]
    before = {entry["name"]: entry for entry in server.post("/automations/filter")}
    assert len(before) == 3 and all(name.startswith("dreamgym: ") for name in before)
    done = server.dreamgym("deploy", "--stale-days", "5")
    assert done.returncode == 0, done.stdout + done.stderr
    after = {entry["name"]: entry for entry in server.post("/automations/filter")}
    assert {name: entry["id"] for name, entry in after.items()} == {
        name: entry["id"] for name, entry in before.items()
    }
    assert after["dreamgym: no success of retrain"]["trigger"]["within"] == 5 * 86400
    switched = {
        entry["name"]: entry["schedules"][0]["active"] for entry in server.post("/deployments/filter")
    }
    assert switched == {"retrain": False, "study": False, "watch-data": True}, "what was switched on stays on"


def test_an_unknown_name_is_refused(server, deployed):
    done = server.dreamgym("deploy", "--on", "retrian")
    assert (
        done.returncode == 2
        and "retrian" in done.stderr
        and "retrain, study, watch-data" in done.stderr.replace("\n", " ")
    )
    done = server.dreamgym("deploy", "--on", "retrain", "--off", "retrain")
    assert done.returncode == 2 and "retrain is in --on and in --off" in done.stderr
    done = server.dreamgym("deploy", "--notify", "slack-webhook/none")
    assert done.returncode == 2 and "no block" in done.stderr


def test_a_scheduled_run_starts_and_new_data_starts_a_retraining(server, deployed):
    server.children = [server.start("worker", "start", "--pool", "dreamgym")]
    first = server.await_run("watch-data", lambda run: run["state_type"] == "COMPLETED", 200)
    assert first["auto_scheduled"] and first["state_name"] == "Completed"
    again = server.await_run("watch-data", lambda run: run["state_name"] == "Skipped", 120)
    assert "those of the last retraining" in again["state"]["message"]
    assert not server.runs("retrain")
    _git_pull(server.clone, "fidelity")
    run = server.await_run("retrain", lambda run: run["state_type"] == "FAILED", 300)
    assert "seed" in run["state"]["message"], "started by the event; its config is refused"


def test_data_that_changes_during_a_retraining_starts_another_after_it(server, deployed):
    """The server would cancel a run without a free slot, so the watch sends its event later."""
    (deployment,) = (entry for entry in server.post("/deployments/filter") if entry["name"] == "retrain")
    later = {
        "type": "SCHEDULED",
        "state_details": {"scheduled_time": "2199-01-01T00:00:00Z"},
    }  # for no worker
    holder = server.post(f"/deployments/{deployment['id']}/create_flow_run", state=later)["id"]
    assert server.set_state(holder, "PENDING")["status"] == "ACCEPT"
    second = server.post(f"/deployments/{deployment['id']}/create_flow_run")["id"]
    server.await_run(
        "retrain", lambda run: run["id"] == second and run["state_type"] == "CANCELLED", 200
    )  # no slot
    before = {run["id"] for run in server.runs("retrain")}
    _git_pull(server.clone, "fidelity", copies=2)
    waits = server.await_run(
        "watch-data", lambda run: "uses the slot" in (run["state"]["message"] or ""), 300
    )
    assert waits["state_name"] == "Skipped"
    assert {run["id"] for run in server.runs("retrain")} == before
    server.set_state(holder, "COMPLETED")
    server.await_run("retrain", lambda run: run["id"] not in before and run["state_type"] == "FAILED", 300)
    server.await_run("watch-data", lambda run: _is_quiet(run) and run["start_time"] > waits["end_time"], 300)
    assert len({run["id"] for run in server.runs("retrain")} - before) == 1, "once, not again and again"


def _is_quiet(run: dict[str, Any]) -> bool:
    return "those of the last retraining" in (run["state"]["message"] or "")


def _git_pull(clone: Path, source: str, copies: int = 1) -> None:
    """Do what `git pull` of a new data version does: its pointer, and its objects in the remote."""
    colleague = Path(shutil.copytree(clone, clone.parent / f"colleague-{copies}"))
    trajectories = colleague / "data" / "alfworld" / "trajectories"
    for number in range(copies):
        name = "train.parquet" if number == 0 else f"more-{number}.parquet"
        (trajectories / name).unlink(missing_ok=True)
        shutil.copy(trajectories / f"{source}.parquet", trajectories / name)
    snapshot(colleague)
    push(colleague)
    shutil.copytree(
        colleague / ".dreamgym" / "dvc-remote", clone / ".dreamgym" / "dvc-remote", dirs_exist_ok=True
    )
    (colleague / "data.dvc").replace(clone / "data.dvc")


@pytest.mark.slow
def test_a_killed_run_is_marked_crashed(server, deployed):
    """After three minutes without a heartbeat; until then it is Running and blocks its deployment's slot."""
    code = (
        "import time\nfrom prefect import flow, tags\n@flow\ndef hangs(): time.sleep(600)\nwith "
        "tags('dreamgym'): hangs()"
    )
    child = subprocess.Popen([sys.executable, "-c", code], env=server.environment, start_new_session=True)
    name = {"flows": {"name": {"any_": ["hangs"]}}}
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline and not any(
        run["state_type"] == "RUNNING" for run in server.post("/flow_runs/filter", **name)
    ):
        time.sleep(1)
    time.sleep(5)  # its first heartbeat
    os.killpg(child.pid, signal.SIGKILL)
    began, deadline = datetime.now(UTC), time.monotonic() + 300
    while time.monotonic() < deadline:
        (run,) = server.post("/flow_runs/filter", **name)
        if run["state_type"] == "CRASHED":
            assert "No heartbeat" in run["state"]["message"]
            assert datetime.now(UTC) - began > timedelta(seconds=100)
            return
        time.sleep(2)
    pytest.fail(f"still {run['state_name']}")


@pytest.mark.slow
def test_a_deployment_without_success_causes_a_notification(server, deployed):
    """No retraining succeeds on this server; its automation, set to 20 s instead of days, names it."""
    name = "dreamgym: no success of retrain"
    (found,) = (entry for entry in server.post("/automations/filter") if entry["name"] == name)
    found["trigger"]["within"] = 20
    kept = {key: found[key] for key in ("name", "description", "enabled", "tags", "trigger", "actions")}
    httpx.put(f"{server.url}/automations/{found['id']}", json=kept, timeout=30).raise_for_status()
    deadline, seen = time.monotonic() + 180, []
    while time.monotonic() < deadline:
        seen = server.post("/events/filter", filter={"event": {"name": ["prefect.automation.triggered"]}})[
            "events"
        ]
        if any(event["resource"].get("prefect.resource.name") == name for event in seen):
            return
        time.sleep(2)
    pytest.fail(f"it did not fire; what fired: {[event['resource'] for event in seen]}")


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_a_scheduled_retraining_completes_and_the_next_is_skipped_since_nothing_changed(
    server, deployed, tmp_path
):
    """A run is due every minute, in a clone of its own. It is last: the test above needs no success."""
    clone = make_clone(tmp_path / "clone")
    described = (clone / "prefect.yaml").read_text().replace('- cron: "0 3 * * *"', "- interval: 60")
    overrides = json.dumps([*last_of_each([*SMALL, *ANYHOW]), "promotion.refresh=week"])
    (clone / "prefect.yaml").write_text(OVERRIDES.sub(f"overrides: {overrides}", described))
    other = Server(clone, server.url, tmp_path / "home")
    done = other.dreamgym("deploy", "--on", "retrain", "--off", "watch-data")
    assert done.returncode == 0, done.stdout + done.stderr
    server.children = [*getattr(server, "children", []), other.start("worker", "start", "--pool", "dreamgym")]
    first = other.await_run(
        "retrain", lambda run: run["auto_scheduled"] and run["state_name"] == "Completed", 1200
    )
    skipped = other.await_run("retrain", lambda run: run["state_name"] == "Skipped", 240)
    (made,) = (path.name for path in (clone / "runs").glob("2*"))
    assert first["total_run_time"] > skipped["total_run_time"] and made in skipped["state"]["message"]
    assert first["name"] == f"retrain {made[-4:]}, seed 0"
    below = server.post("/flow_runs/filter", flow_runs={"parent_flow_run_id": {"any_": [first["id"]]}})
    assert {run["name"] for run in below} == {first["name"]} and len(below) == 10, (
        "its stages are its own subflows"
    )
    between = [
        run
        for run in other.runs("retrain")
        if first["start_time"] < run["expected_start_time"] < first["end_time"]
    ]
    assert between and all(run["state_name"] == "Cancelled" for run in between), (
        "what falls due meanwhile is not queued"
    )
