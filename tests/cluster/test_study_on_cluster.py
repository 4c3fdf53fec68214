"""A study's seeds on a Ray cluster of this machine have the cells of one process, also if one is lost."""

import json
import os
import signal
import subprocess
import time

import psutil
import pytest
from prefect_server import shared_server
from small_job import SMALL, command_of, environment_of, make_clone, run

pytest.importorskip("ray", reason="Ray is an extra: make install RAY=1")
CLOCKS = ("run_id", "seconds", "curve", "commit")
"""Values of a cell that depend on the clock or on the commit."""
STUDY = ("study", "--cells=cells", "--methods=clone,clone-successes", "--seeds=0,1", "--against=clone")


def cells(clone):
    """Return file -> content of the study's cells, without the clock."""
    files = {file.name: json.loads(file.read_text()) for file in (clone / "cells").glob("*.json")}
    return {
        name: {key: value for key, value in cell.items() if key not in CLOCKS} for name, cell in files.items()
    }


def wait_for_worker(child, clone, log):
    """Return a process of the command that computes a seed, once it has begun to train."""
    while not list((clone / ".dreamgym" / "stages").glob("clone-*.partial")):
        assert child.poll() is None, log.read_text()
        time.sleep(0.2)
    return next(
        process
        for process in psutil.Process(child.pid).children(recursive=True)
        if "seed_on_worker" in " ".join(process.cmdline())
    )


def test_cells_are_those_of_one_process_although_a_worker_is_killed(tmp_path):
    here, there = (make_clone(tmp_path / name) for name in ("here", "there"))
    code, output, _ = run(here, verb=STUDY)
    assert code == 0, output
    log = tmp_path / "log"
    with log.open("wb") as sink:
        child = subprocess.Popen(
            command_of(*STUDY, *SMALL, "cluster=local"),
            cwd=there,
            env=environment_of(there) | {"PREFECT_API_URL": shared_server()},
            stdout=sink,
            stderr=sink,
            start_new_session=True,
        )
        try:
            os.kill(wait_for_worker(child, there, log).pid, signal.SIGKILL)
            assert child.wait(timeout=500) == 0, log.read_text()
        finally:
            if child.poll() is None:
                os.killpg(child.pid, signal.SIGKILL)
    assert len(cells(here)) == 4
    assert cells(there) == cells(here)
