"""SIGKILL over the main job, at one moment by default and at twenty random ones (`-m slow`): each run that goes on ends with the numbers of
the one that nobody disturbed."""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import subprocess
import time

import httpx
import pytest
from prefect_server import shared_server
from small_job import ANYHOW, SMALL, command_of, environment_of, log_of, make_clone, numbers, run

KILLS = int(os.environ.get("DREAMGYM_KILLS", "20"))
AFTER = ("sim_to_real", "evaluate")
"""The stages that the default kill makes anew."""


@pytest.mark.timeout(900)
def test_a_run_killed_at_a_checkpoint_of_rl_in_the_real_world_goes_on_to_the_same_numbers(finished, tmp_path):
    """And spends no real interaction twice. The stages before are those of the finished run, so that it takes no longer than it must."""
    clone = make_clone(tmp_path / "clone")
    stages = clone / ".dreamgym" / "stages"
    shutil.copytree(finished.kept / ".dreamgym" / "stages", stages, ignore=shutil.ignore_patterns(*(f"{name}-*" for name in AFTER)))
    command, environment = command_of("retrain", *SMALL, "promotion.threshold=0"), environment_of(clone)
    environment |= {"PREFECT_API_URL": shared_server()}
    with (tmp_path / "log").open("wb") as output:
        child = subprocess.Popen(command, cwd=clone, env=environment, stdout=output, stderr=output, start_new_session=True)
        try:
            while not list(stages.glob("sim_to_real-*/checkpoint.pt")) and not list(stages.glob("evaluate-*")):
                assert child.poll() is None, (tmp_path / "log").read_text()
                time.sleep(0.05)
        finally:
            if child.poll() is None:
                os.killpg(child.pid, signal.SIGKILL)
            child.wait()
    killed = json.loads((clone / "runs" / "latest" / "manifest.json").read_text())["prefect_flow_run_id"]
    code, said, _ = run(clone, verb=("resume",), small=False)
    assert code == 0 and said.count(": reused") >= 6, said
    shown = httpx.get(f"{shared_server()}/flow_runs/{killed}", timeout=30).json()
    assert shown["state_name"] == "Crashed", "Prefect knows its end"
    assert numbers(clone) == numbers(finished.kept)
    assert sorted(log_of(clone)) == sorted(log_of(finished.kept)), "no transition lost, none twice"


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory):
    """A run from start to end: its clone, its numbers, its seconds."""
    clone = make_clone(tmp_path_factory.mktemp("whole") / "clone")
    code, output, seconds = run(clone, *ANYHOW, own_server=True)
    assert code == 0, output
    return numbers(clone), log_of(clone), seconds


@pytest.mark.slow
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("number", range(KILLS))
def test_a_killed_run_goes_on_to_the_same_numbers(undisturbed, tmp_path, number):
    wanted, log, seconds = undisturbed
    clone = make_clone(tmp_path / "clone")
    moment = random.Random(number).uniform(1, seconds)
    command = command_of("retrain", *SMALL, *ANYHOW)
    with (tmp_path / "log").open("wb") as output:
        child = subprocess.Popen(command, cwd=clone, env=environment_of(clone), stdout=output, stderr=output, start_new_session=True)
        time.sleep(moment)
        os.killpg(child.pid, signal.SIGKILL)
        child.wait()
    begun = (clone / "runs" / "latest" / "manifest.json").is_file()
    ended = begun and json.loads((clone / "runs" / "latest" / "manifest.json").read_text())["status"] == "finished"
    if not ended:
        verb = ("resume",) if begun else ("retrain",)
        more = () if begun else ANYHOW
        code, said, _ = run(clone, *more, verb=verb, small=not begun, own_server=True)
        assert code == 0, said
    assert numbers(clone) == wanted, f"killed after {moment:.1f} of {seconds:.1f} s"
    found = log_of(clone)
    assert sorted(found) == sorted(log) and len({step[1:3] for step in found}) == len(found), "no transition lost, none twice"
    shutil.rmtree(clone)
