"""Two main jobs at the same time in one workspace both finish, and shared files stay intact."""

from __future__ import annotations

import json
import subprocess

import pytest
from small_job import ANYHOW, SMALL, command_of, environment_of, log_of, make_clone, run

from components.errors import PROMOTION_REFUSED
from components.trajectories.dvc import snapshots

ENDS = {0, PROMOTION_REFUSED}
"""One of two different runs need not be better than the other, which may be the champion by then."""


@pytest.mark.slow
@pytest.mark.timeout(1500)
@pytest.mark.parametrize("second", ["seed=1", "seed=0"], ids=["another run", "the same run"])
def test_both_jobs_finish(tmp_path, second):
    clone = make_clone(tmp_path / "clone")
    jobs = []
    for number, seed in enumerate(("seed=0", second)):
        with (tmp_path / f"log-{number}").open("wb") as output:
            command = command_of("retrain", *SMALL, *ANYHOW, seed)
            jobs.append(
                subprocess.Popen(command, cwd=clone, env=environment_of(clone), stdout=output, stderr=output)
            )
    try:
        codes = [job.wait(timeout=1200) for job in jobs]
    finally:
        for job in jobs:
            job.terminate()
    said = "\n".join((tmp_path / f"log-{number}").read_text()[-3000:] for number in range(2))
    assert 0 in codes and set(codes) <= ENDS, said
    manifests = [json.loads(path.read_text()) for path in (clone / "runs").glob("2*/manifest.json")]
    assert [manifest["status"] for manifest in manifests] == ["finished"] * 2
    snapshots.verify(clone)
    log = log_of(clone)
    assert log and len({step[1:3] for step in log}) == len(log), "no transition twice"
    assert not list((clone / ".dreamgym" / "stages").glob("*.partial"))
    code, output, _ = run(clone, *ANYHOW, own_server=True)
    assert code in ENDS and "reused" in output, output[-3000:]
