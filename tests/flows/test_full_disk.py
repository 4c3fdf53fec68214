"""A disk that fills up during each stage causes a clear error, and the run resumes once there is space."""

from __future__ import annotations

import contextlib
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from small_job import ANYHOW, SMALL, command_of, environment_of, log_of, make_clone, numbers, run

STAGES = (
    "validate",
    "experience_model",
    "clone",
    "check_cloned",
    "synthetic_rl",
    "check_dreamed",
    "sim_to_real",
    "evaluate",
)
MOMENTS = {name: f"{name}-*.partial" for name in STAGES} | {
    "snapshot_buffer": "check_dreamed-*/stage.json",
    "promote": "evaluate-*/stage.json",
}
"""Step of the job -> what lies in the store when it begins; the last two make no stage, they follow one that
is finished.
"""
SIZE = "1500m"


@pytest.fixture
def disk(tmp_path) -> Iterator[Path]:
    """A small file system in memory, because filling the machine's own would affect other processes."""
    place = tmp_path / "disk"
    place.mkdir()
    made = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={SIZE}", "tmpfs", str(place)], capture_output=True
    )
    if made.returncode:
        pytest.skip("mounting a file system needs root")
    yield place
    subprocess.run(["umount", "-l", str(place)], check=True)


def fill(disk: Path) -> Path:
    """Fill the rest of the disk."""
    filler = disk / "filler"
    with contextlib.suppress(OSError), filler.open("wb", buffering=0) as file:
        while True:
            file.write(bytes(1 << 16))
    return filler


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory):
    clone = make_clone(tmp_path_factory.mktemp("whole") / "clone")
    code, output, _ = run(clone, *ANYHOW, own_server=True)
    assert code == 0, output
    return numbers(clone), log_of(clone)


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("stage", MOMENTS)
def test_a_run_whose_disk_fills_up_resumes_when_there_is_space(undisturbed, disk, stage):
    clone = make_clone(disk / "clone")
    begun = clone / ".dreamgym" / "stages"
    with (disk.parent / "log").open("wb") as output:
        command = command_of("retrain", *SMALL, *ANYHOW)
        child = subprocess.Popen(command, cwd=clone, env=environment_of(clone), stdout=output, stderr=output)
        while child.poll() is None and not list(begun.glob(MOMENTS[stage])):
            time.sleep(0.05)
        filler = fill(disk)
        assert child.poll() is None, "the disk was filled too late"
        code = child.wait(timeout=560)
    said = (disk.parent / "log").read_text()
    assert code == 1 and "disk is full" in said.lower(), said[-3000:]
    assert "Next: " in said, said[-3000:]
    filler.unlink()
    code, output_of_resume, _ = run(clone, verb=("resume",), small=False, own_server=True)
    assert code == 0, output_of_resume[-3000:]
    assert (numbers(clone), sorted(log_of(clone))) == (undisturbed[0], sorted(undisturbed[1]))
