"""SIGKILL at random moments over the main job: each run that goes on ends with the numbers of the one that nobody disturbed."""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest
from small_job import SMALL, command_of, environment_of, make_clone, run

from components.trajectories.store import read_log

KILLS = int(os.environ.get("DREAMGYM_KILLS", "20"))
CLOCKS = ("second", "wall", "bytes")
"""What of a metric's name says that it tells of the machine, not of the run."""


def numbers(clone: Path) -> dict[str, Any]:
    """The latest run's metrics but for those of the clock, to the last bit, and each stage's outputs."""
    latest = clone / "runs" / "latest"
    metrics = json.loads((latest / "metrics.json").read_text())
    manifest = json.loads((latest / "manifest.json").read_text())
    found = {name: entry for name, entry in metrics.items() if not any(word in name for word in CLOCKS)}
    for stage in manifest["stages"]:
        (record,) = (clone / ".dreamgym" / "stages").glob(f"{stage['name']}-{stage['key'][:12]}/stage.json")
        hashes = json.loads(record.read_text())["output_hashes"]
        found |= {f"{stage['name']}/{output}": value for output, value in hashes.items()}
    return found


def log_of(clone: Path) -> list[tuple[str, int]]:
    return [(step.episode_id, step.step) for step in read_log(clone / "data" / "replay")]


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory):
    """A run from start to end: its clone, its numbers, its seconds."""
    clone = make_clone(tmp_path_factory.mktemp("whole") / "clone")
    code, output, seconds = run(clone, "promotion.threshold=0", "tracking.dvc_experiment=false")
    assert code == 0, output
    return numbers(clone), log_of(clone), seconds


@pytest.mark.slow
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("number", range(KILLS))
def test_a_killed_run_goes_on_to_the_same_numbers(undisturbed, tmp_path, number):
    wanted, log, seconds = undisturbed
    clone = make_clone(tmp_path / "clone")
    moment = random.Random(number).uniform(1, seconds)
    command = command_of("retrain", *SMALL, "promotion.threshold=0", "tracking.dvc_experiment=false")
    with (tmp_path / "log").open("wb") as output:
        child = subprocess.Popen(command, cwd=clone, env=environment_of(clone), stdout=output, stderr=output, start_new_session=True)
        time.sleep(moment)
        os.killpg(child.pid, signal.SIGKILL)
        child.wait()
    begun = (clone / "runs" / "latest" / "manifest.json").is_file()
    ended = begun and json.loads((clone / "runs" / "latest" / "manifest.json").read_text())["status"] == "finished"
    if not ended:
        verb = ("resume",) if begun else ("retrain",)
        more = () if begun else ("promotion.threshold=0", "tracking.dvc_experiment=false")
        code, said, _ = run(clone, *more, verb=verb, small=not begun)
        assert code == 0, said
    assert numbers(clone) == wanted, f"killed after {moment:.1f} of {seconds:.1f} s"
    found = log_of(clone)
    assert sorted(found) == sorted(log) and len(set(found)) == len(found), "no transition lost, none twice"
    shutil.rmtree(clone)
