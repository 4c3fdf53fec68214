"""What the gate does where a package of the system cannot be installed: `apt-get` and `id` are stand-ins, as a test may install nothing."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
REFUSES = 'echo "$@" >> "$(dirname "$0")/asked"; echo "E: no route to the mirror"; exit 100'


@pytest.fixture
def install(tmp_path):
    """`.ci/install` with the given stand-ins first on the path."""

    def call(ci: str, **programs: str) -> subprocess.CompletedProcess[str]:
        for name, lines in programs.items():
            (tmp_path / name).write_text(f"#!/bin/sh\n{lines}\n")
            (tmp_path / name).chmod(0o755)
        environment = {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}", "CI": ci}
        command = [str(ROOT / ".ci" / "install"), "postgresql", "the databases"]
        return subprocess.run(command, env=environment, capture_output=True, text=True)

    return call


def test_in_ci_a_package_that_cannot_be_installed_in_two_tries_shuts_the_gate(install, tmp_path):
    done = install("true", **{"apt-get": REFUSES, "id": "echo 0"})
    assert done.returncode == 1 and "no route to the mirror" in done.stdout
    assert "postgresql could not be installed in two tries. Expected it, for the databases." in done.stdout
    assert (tmp_path / "asked").read_text().count("update") == 2


def test_elsewhere_it_is_said_what_is_not_tested(install):
    done = install("", **{"apt-get": REFUSES, "id": "echo 0"})
    assert done.returncode == 0 and "Not tested here: the databases" in done.stdout
    done = install("true", **{"apt-get": REFUSES, "id": "echo 1000"})
    assert done.returncode == 0 and "nobody here may install it" in done.stdout


def test_a_second_try_may_do(install):
    once = 'test -e "$0.tried" && exit 0; touch "$0.tried"; exit 100'
    done = install("true", **{"apt-get": once, "id": "echo 0"})
    assert (done.returncode, done.stdout) == (0, "")


def test_the_gate_tells_at_its_end_what_was_not_tested():
    """Under `pipefail` a shut gate is not hidden by the pipe that keeps the notes."""
    lines = (ROOT / ".ci" / "run").read_text().splitlines()
    assert "set -euo pipefail" in lines and lines[-1] == 'cat "$notes"'
    assert sum(".ci/install" in line and 'tee -a "$notes"' in line for line in lines) == 2
    assert any(line.startswith("make test ARGS=-rs") for line in lines)
