"""A stage that hangs ends its run, also one that only waits for DVC or MLflow."""

from __future__ import annotations

import subprocess
import sys
import time
from types import SimpleNamespace

import psutil
import pytest
from builders import make_task

from components.config import load_config
from components.errors import StageTimeout
from components.tracking.manifest import DataLineage
from components.tracking.stage_store.stage_result import StageResult
from components.trajectories.dvc import snapshots
from components.trajectories.store import write_tasks
from flows.retrain import snapshot_buffer
from flows.run.pipeline_run import Run
from flows.stages.promote import promote_challenger

KEY = "0" * 64


@pytest.fixture
def run(tmp_path):
    """A run in a repository under DVC, before its snapshot, with six seconds for each stage."""
    subprocess.run(["git", "init", "-q", str(tmp_path)], check=True)
    found = Run(load_config(None, ["stage_timeout_minutes=0.1"]), tmp_path)
    found.data.root.mkdir(parents=True)
    found.data.settings.write_text("{}")
    snapshots.snapshot(tmp_path)
    found.manifest = SimpleNamespace(data=DataLineage(parts_in=snapshots.data_parts(tmp_path)))
    found.results["synthetic_rl"] = StageResult(
        "synthetic_rl", KEY, tmp_path, {}, {"replay": tmp_path / "dreams"}, {}, 1.0
    )
    return found


def test_a_snapshot_whose_dvc_hangs_ends_the_run_and_the_command(run, monkeypatch, tmp_path):
    program = (
        tmp_path / "hangs"
    )  # stands in for DVC before a remote that accepts a connection and says nothing
    program.write_text(f"#!/bin/sh\necho $$ > {tmp_path}/child\nexec sleep 600\n")
    program.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(program))
    began = time.monotonic()
    with pytest.raises(
        StageTimeout,
        match=r"The stage snapshot_buffer had not ended after 0.1 minutes.*stage_timeout_minutes=0.2",
    ):
        snapshot_buffer.fn(run)
    assert time.monotonic() - began < 60
    assert not psutil.pid_exists(int((tmp_path / "child").read_text()))


def test_a_promotion_that_hangs_ends_the_run(run):
    class Silent:
        """Replaces MLflow with a server that accepts a connection and never answers."""

        def alias(self, *_):
            for _ in range(600):
                time.sleep(0.1)

    run.__dict__["tracker"] = Silent()
    run.results |= dict.fromkeys(("sim_to_real", "evaluate"), run.results["synthetic_rl"])
    run.results["evaluate"].outputs["refined"] = run.root / "hangs"
    (run.root / "hangs").write_text("{}")
    run.results["evaluate"].outputs["tasks"] = run.root / "tasks.parquet"
    write_tasks(run.root / "tasks.parquet", [make_task(0)])
    with pytest.raises(StageTimeout, match="The stage promote had not ended after 0.1 minutes"):
        promote_challenger.fn(run)
