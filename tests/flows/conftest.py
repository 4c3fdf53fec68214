"""What the tests of the commands share: a finished run, made once, and a command line that leaves nothing
behind in this process.
"""

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
    """The Prefect server that the commands share ends with them."""
    yield
    stop_shared_server()


@pytest.fixture
def quiet_process(monkeypatch, tmp_path):
    """A Prefect home of the test's own, wide error lines, and the libraries' settings, all restored
    afterwards.
    """
    monkeypatch.setenv("PREFECT_HOME", str(tmp_path / "prefect"))
    monkeypatch.setattr(command, "err", Console(stderr=True, width=400))
    for name, value in DEFAULTS.items():
        monkeypatch.setenv(name, value)


@dataclass(frozen=True)
class Finished:
    """A clone in which `dreamgym retrain` has come to its end, what it said, and a copy of the clone that
    nobody changes.
    """

    clone: Path
    said: str
    kept: Path


@pytest.fixture(scope="session")
def finished(tmp_path_factory):
    """The first run, in a clone without data; the processes of one test session share it."""
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
    return Finished(clone, said.read_text(), kept)
