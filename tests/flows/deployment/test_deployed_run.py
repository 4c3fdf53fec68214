"""Prefect shows a deployed retraining with the run's name and the stages as its subflows."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys

import httpx
from prefect_server import shared_server
from small_job import SMALL, environment_of

from components.trajectories.dvc import snapshots

PROGRAM = """
import json, sys
from flows.deployment.scheduled_flows import retrain_from_file
print(json.dumps(retrain_from_file("configs/quick.yaml", json.loads(sys.argv[1]), False)))
"""
STAGES = [
    "validate",
    "experience-model",
    "clone",
    "check-dream",
    "synthetic-rl",
    "check-dream",
    "snapshot-buffer",
    "sim-to-real",
]
STAGES += ["evaluate", "promote"]


def test_its_flow_run_has_the_runs_name_and_the_stages_below_it(finished, tmp_path):
    clone, url = shutil.copytree(finished.kept, tmp_path / "clone", symlinks=True), shared_server()
    trained = snapshots.part_hash(clone, "alfworld/trajectories")
    overrides = json.dumps([*SMALL, "promotion.threshold=0", "tracking.dvc_experiment=false"])
    environment = environment_of(clone) | {"PREFECT_API_URL": url}
    command = [sys.executable, "-c", PROGRAM, overrides]
    done = subprocess.run(command, cwd=clone, env=environment, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    run = json.loads(done.stdout.splitlines()[-1])

    def post(path, **body):
        return httpx.post(f"{url}{path}", json=body, timeout=30).raise_for_status().json()

    manifest = json.loads((clone / "runs" / run / "manifest.json").read_text())
    (flow_run,) = post("/flow_runs/filter", flow_runs={"id": {"any_": [manifest["prefect_flow_run_id"]]}})
    name = f"retrain {run[-4:]}, seed 0"
    assert (flow_run["name"], flow_run["parent_task_run_id"]) == (name, None)
    below = post(
        "/flow_runs/filter",
        flow_runs={"parent_flow_run_id": {"any_": [flow_run["id"]]}},
        sort="START_TIME_ASC",
    )
    flows = {
        flow["id"]: flow["name"]
        for flow in post("/flows/filter", flows={"id": {"any_": [child["flow_id"] for child in below]}})
    }
    assert [flows[child["flow_id"]] for child in below] == STAGES and {child["name"] for child in below} == {
        name
    }
    assert (
        httpx.get(f"{url}/variables/name/dreamgym_trajectories_alfworld", timeout=30).json()["value"]
        == trained
    )
