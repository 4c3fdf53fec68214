"""Fixtures of the commands' tests: a finished run, made once, and a process whose settings are restored."""

from __future__ import annotations

import os
import shutil
from dataclasses import dataclass
from pathlib import Path

import pytest
from filelock import FileLock
from prefect_server import stop_shared_server
from rich.console import Console
from small_job import make_clone, run

from flows.cli import command
from flows.settings import DEFAULTS


@pytest.fixture(scope="session", autouse=True)
def _server_ends():
    """Stop the Prefect server that the commands share."""
    yield
    stop_shared_server()


@pytest.fixture
def quiet_process(monkeypatch, tmp_path):
    """Set a Prefect home of the test, wide error lines and the libraries' settings; restore all."""
    monkeypatch.setenv("PREFECT_HOME", str(tmp_path / "prefect"))
    monkeypatch.setattr(command, "err", Console(stderr=True, width=400))
    for name, value in DEFAULTS.items():
        monkeypatch.setenv(name, value)


@dataclass(frozen=True)
class FinishedRun:
    """A clone with a finished run of `dreamgym retrain`.

    Args:
        said: output of the command.
        kept: a copy of the clone that no test changes.
    """

    clone: Path
    said: str
    kept: Path


@pytest.fixture(scope="session")
def finished(tmp_path_factory):
    """A finished run in a clone without data; the processes of one test session share it."""
    own = tmp_path_factory.getbasetemp()
    place = own.parent if "PYTEST_XDIST_WORKER" in os.environ else own
    clone, said, kept = (place / name for name in ("finished", "finished.log", "finished-kept"))
    with FileLock(place / "finished.lock"):
        if not said.is_file():
            shutil.rmtree(clone, ignore_errors=True)
            code, output, _ = run(make_clone(clone), "promotion.threshold=0", own_server=True)
            assert code == 0, output
            shutil.copytree(clone, kept, symlinks=True)
            said.write_text(output)
    return FinishedRun(clone, said.read_text(), kept)
