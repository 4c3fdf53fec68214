"""DVC commands wait for each other, are killed if they hang, and report a full disk."""

# ruff: noqa: F811  (fixtures of another module)
from __future__ import annotations

import fcntl
import shutil
import subprocess
import sys
import time

import psutil
import pytest
from test_snapshots import STEPS, pushed, repository  # noqa: F401  (fixtures)

from components.errors import DataError, StageTimeout
from components.trajectories.dvc import dvc_command, snapshots


def test_a_lock_is_waited_for_and_then_reported(repository, monkeypatch):
    monkeypatch.setattr(dvc_command, "LOCK_WAIT_SECONDS", 0.3)
    (repository / ".dvc" / "tmp").mkdir(exist_ok=True)
    with (repository / ".dvc" / "tmp" / "dreamgym.lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        (repository / STEPS).write_text("more")
        with pytest.raises(DataError, match="held DVC's lock .* for 0.3 s"):
            snapshots.snapshot(repository)


HOLD_DVC_LOCK = (
    "import time; from dvc.repo import Repo\nwith Repo('.').lock: print('held', flush=True); time.sleep(4.5)"
)


def test_another_dvc_command_is_waited_for(repository):
    with subprocess.Popen(
        [sys.executable, "-c", HOLD_DVC_LOCK], cwd=repository, stdout=subprocess.PIPE, text=True
    ) as other:
        assert other.stdout is not None and other.stdout.readline() == "held\n"
        assert snapshots.snapshot(repository).files == 2
        assert other.wait() == 0


def test_a_hanging_command_is_killed_with_its_children_and_reported(repository, monkeypatch, tmp_path):
    program = (
        tmp_path / "hangs"
    )  # stands in for DVC before a remote that accepts a connection and says nothing
    program.write_text(f"#!/bin/sh\nsleep 600 &\necho $! > {tmp_path}/child\nsleep 600\n")
    program.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(program))
    monkeypatch.setattr(dvc_command, "TIME_LIMIT_SECONDS", 3.6)
    start = time.monotonic()
    with pytest.raises(
        StageTimeout,
        match="`dvc push --remote local data.dvc` had not ended after 0.001 hours and was stopped",
    ):
        snapshots.push(repository)
    assert time.monotonic() - start < 60
    child = int((tmp_path / "child").read_text())
    while _is_alive(child) and time.monotonic() - start < 60:
        time.sleep(0.05)  # a signal takes a moment to arrive
    assert not _is_alive(child)


def _is_alive(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def test_a_full_disk_is_reported(repository, monkeypatch, tmp_path):
    program = tmp_path / "full"
    program.write_text(
        "#!/bin/sh\necho 'ERROR: unexpected error - [Errno 28] No space left on device' >&2; exit 255\n"
    )
    program.chmod(0o755)
    monkeypatch.setattr(
        sys, "executable", str(program)
    )  # stands in for DVC, since a full disk would affect every process
    (repository / STEPS).write_text("more")
    pointer = (repository / "data.dvc").read_text()
    with pytest.raises(
        DataError, match="The disk is full: `dvc commit .* bytes are free.*data.dvc is unchanged"
    ):
        snapshots.snapshot(repository)
    assert (repository / "data.dvc").read_text() == pointer
    shutil.rmtree(repository / ".dvc" / "cache")
    with pytest.raises(DataError, match="The disk is full: `dvc fetch"):
        snapshots.pull(repository)


def test_a_disk_filled_by_a_checkout_is_reported_although_dvc_blames_the_cache(
    repository, monkeypatch, tmp_path
):
    program = tmp_path / "full"  # what DVC prints on a full file system of 4 MB
    message = "ERROR: Checkout failed for following targets:\ndata\nIs your cache up to date?"
    program.write_text(f"#!/bin/sh\necho '{message}' >&2; exit 255\n")
    program.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(program))
    with pytest.raises(DataError, match="dvc checkout data.dvc` failed: Checkout failed"):
        snapshots.pull(repository)
    pointer = repository / "data.dvc"
    pointer.write_text(pointer.read_text().replace("size: 11", f"size: {10**18}"))
    with pytest.raises(
        DataError, match="The disk is full: `dvc checkout data.dvc` found no space, .* bytes are free"
    ):
        snapshots.pull(repository)
