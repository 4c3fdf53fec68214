"""SIGKILL at random moments over the main job: each run that goes on ends with the numbers of the one that nobody disturbed."""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import subprocess
import time

import pytest
from small_job import ANYHOW, SMALL, command_of, environment_of, log_of, make_clone, numbers, run

KILLS = int(os.environ.get("DREAMGYM_KILLS", "20"))


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
