"""After SIGKILL of a command no child process is left: workers, Prefect's server, `ui`'s servers."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import time
import uuid

import pytest
from marked import VARIABLE, left_after, marked
from ports import free_port
from small_job import ANYHOW, SMALL, command_of, environment_of, make_clone

LATER = {
    "synthetic_rl": ("synthetic_rl", "check_dreamed", "sim_to_real", "evaluate"),
    "experience_model": (
        "experience_model",
        "clone",
        "check_cloned",
        "synthetic_rl",
        "check_dreamed",
        "sim_to_real",
        "evaluate",
    ),
    "check_cloned": ("check_cloned", "synthetic_rl", "check_dreamed", "sim_to_real", "evaluate"),
    "sim_to_real": ("sim_to_real", "evaluate"),
    "evaluate": ("evaluate",),
}
"""The stage that is killed -> the stages that the run makes; it reuses the others."""
OTHERS = [name for name in LATER if name != "synthetic_rl"]  # which has every kind of child
WORKERS = {"synthetic_rl": 2, "check_cloned": 1, "sim_to_real": 1, "evaluate": 1}
"""Worker processes to wait for, so that the kill meets them."""


def await_true(condition, child, log, seconds=400):
    """Wait for `condition` while `child` runs."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert child.poll() is None and time.monotonic() < deadline, log.read_text()[-3000:]
        time.sleep(0.05)


def workers(mark):
    """Return the process ids of `multiprocessing`'s workers."""
    return [process for process, line in marked(mark).items() if "spawn_main" in line]


@pytest.mark.parametrize(
    "stage", ["synthetic_rl", *(pytest.param(name, marks=pytest.mark.slow) for name in OTHERS)]
)
@pytest.mark.timeout(900)
def test_after_sigkill_in_a_stage_no_process_of_the_job_is_left(finished, tmp_path, stage):
    clone, log, mark = make_clone(tmp_path / "clone"), tmp_path / "log", uuid.uuid4().hex
    stages = clone / ".dreamgym" / "stages"
    made = shutil.ignore_patterns(*(f"{name}-*" for name in LATER[stage]))
    shutil.copytree(finished.kept / ".dreamgym" / "stages", stages, ignore=made)
    environment = environment_of(clone) | {VARIABLE: mark}
    environment.pop("PREFECT_API_URL", None)
    with log.open("wb") as output:
        command = command_of("retrain", *SMALL, *ANYHOW)
        child = subprocess.Popen(
            command, cwd=clone, env=environment, stdout=output, stderr=output, start_new_session=True
        )
        try:
            await_true(lambda: list(stages.glob(f"{stage}-*.partial")), child, log)
            await_true(lambda: len(workers(mark)) >= WORKERS.get(stage, 0), child, log)
            lines = marked(mark).values()
            assert any("uvicorn" in line for line in lines), "Prefect's temporary server is among them"
            os.kill(child.pid, signal.SIGKILL)
            child.wait()
            assert not left_after(mark, 10)
        finally:
            for process in marked(mark):
                os.kill(process, signal.SIGKILL)


@pytest.mark.slow
def test_after_sigkill_of_the_user_interfaces_no_server_is_left(tmp_path):
    clone, log, mark = make_clone(tmp_path / "clone"), tmp_path / "log", uuid.uuid4().hex
    environment = environment_of(clone) | {VARIABLE: mark, "PYTHONUNBUFFERED": "1"}
    environment.pop("PREFECT_API_URL", None)
    command = command_of("ui", f"--mlflow-port={free_port()}", f"--prefect-port={free_port()}")
    with log.open("wb") as output:
        child = subprocess.Popen(
            command, cwd=clone, env=environment, stdout=output, stderr=output, start_new_session=True
        )
        try:
            await_true(lambda: "Prefect: " in log.read_text(), child, log)
            assert len(marked(mark)) >= 3
            os.kill(child.pid, signal.SIGKILL)
            child.wait()
            assert not left_after(mark, 10)
        finally:
            for process in marked(mark):
                os.kill(process, signal.SIGKILL)
