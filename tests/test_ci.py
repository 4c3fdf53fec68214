"""What CI and `make chromium` do if a system package cannot be installed.

`apt-get` and `id` are replaced by scripts, because a test must not install anything.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
REFUSES = 'echo "$@" >> "$(dirname "$0")/asked"; echo "E: no route to the mirror"; exit 100'


@pytest.fixture
def install(tmp_path):
    """Call `.ci/install` with the given scripts first on the path."""

    def call(ci: str, **programs: str) -> subprocess.CompletedProcess[str]:
        for name, lines in programs.items():
            (tmp_path / name).write_text(f"#!/bin/sh\n{lines}\n")
            (tmp_path / name).chmod(0o755)
        environment = {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}", "CI": ci}
        command = [str(ROOT / ".ci" / "install"), "postgresql", "the databases"]
        return subprocess.run(command, env=environment, capture_output=True, text=True)

    return call


def test_in_ci_a_package_that_cannot_be_installed_in_two_attempts_fails_the_build(install, tmp_path):
    done = install("true", **{"apt-get": REFUSES, "id": "echo 0"})
    assert done.returncode == 1 and "no route to the mirror" in done.stdout
    assert "postgresql could not be installed in two tries. Expected it, for the databases." in done.stdout
    assert (tmp_path / "asked").read_text().count("update") == 2


def test_elsewhere_the_output_says_what_is_not_tested(install):
    done = install("", **{"apt-get": REFUSES, "id": "echo 0"})
    assert done.returncode == 0 and "Not tested here: the databases" in done.stdout
    done = install("true", **{"apt-get": REFUSES, "id": "echo 1000"})
    assert done.returncode == 0 and "nobody here may install it" in done.stdout


def test_a_successful_second_attempt_is_enough(install):
    once = 'test -e "$0.tried" && exit 0; touch "$0.tried"; exit 100'
    done = install("true", **{"apt-get": once, "id": "echo 0"})
    assert (done.returncode, done.stdout) == (0, "")


def test_the_ci_script_ends_with_what_was_not_tested():
    """With `pipefail` the pipe that keeps the notes does not hide a failure."""
    lines = (ROOT / ".ci" / "run").read_text().splitlines()
    assert "set -euo pipefail" in lines and lines[-1] == 'cat "$notes"'
    assert sum(".ci/install" in line and 'tee -a "$notes"' in line for line in lines) == 2
    assert any(line.startswith("make test ARGS=-rs") for line in lines)


@pytest.fixture
def make_chromium(tmp_path):
    """Call `make chromium` with only the given scripts and what the recipe needs on the path."""

    def call(*arguments: str, **programs: str) -> subprocess.CompletedProcess[str]:
        for name in {"sh", "cat", "touch", "dirname"} - {path.name for path in tmp_path.iterdir()}:
            (tmp_path / name).symlink_to(shutil.which(name))
        for name, lines in programs.items():
            (tmp_path / name).write_text(f"#!/bin/sh\n{lines}\n")
            (tmp_path / name).chmod(0o755)
        command = [shutil.which("make"), "--no-print-directory", "-C", str(ROOT), "chromium", *arguments]
        return subprocess.run(command, env={"PATH": str(tmp_path)}, capture_output=True, text=True)

    return call


def test_make_installs_chromium_where_root_has_apt_get(make_chromium, tmp_path):
    done = make_chromium(**{"apt-get": 'echo "$@" >> "$(dirname "$0")/asked"', "id": "echo 0"})
    assert done.returncode == 0
    assert (tmp_path / "asked").read_text().splitlines() == [
        "update -q",
        "install -y -q --no-install-recommends chromium",
    ]


@pytest.mark.parametrize(
    ("programs", "why"),
    [
        ({"apt-get": REFUSES, "id": "echo 0"}, "apt-get could not install it"),
        ({"apt-get": REFUSES, "id": "echo 1000"}, "it is not root who asks"),
        ({"id": "echo 0"}, "there is no apt-get"),
    ],
)
def test_if_make_cannot_install_chromium_it_says_what_to_type(make_chromium, programs, why):
    done = make_chromium(**programs)
    assert (
        done.returncode == 2
        and why in done.stdout
        and "Type: sudo apt-get install -y chromium" in done.stdout
    )


def test_make_installs_no_second_chromium(make_chromium, tmp_path):
    refusing = {"apt-get": REFUSES, "id": "echo 0"}
    assert make_chromium("ARGS=environment.browser.executable=/opt/chrome", **refusing).returncode == 0
    assert make_chromium(**refusing, **{"google-chrome": "exit 1"}).returncode == 0
    assert not (tmp_path / "asked").exists()
