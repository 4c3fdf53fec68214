"""What the tests of the commands share: a command line run in this process leaves nothing behind in it."""

from __future__ import annotations

import pytest
from rich.console import Console

from flows import command
from flows.settings import DEFAULTS


@pytest.fixture
def quiet_process(monkeypatch, tmp_path):
    """A Prefect home of the test's own, wide error lines, and the libraries' settings, all restored afterwards."""
    monkeypatch.setenv("PREFECT_HOME", str(tmp_path / "prefect"))
    monkeypatch.setattr(command, "err", Console(stderr=True, width=400))
    for name, value in DEFAULTS.items():
        monkeypatch.setenv(name, value)
