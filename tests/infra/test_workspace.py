"""The workspace of a worker remains after its container ends, and is updated to the image's commit."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parents[2]


def git(place: Path, *arguments: str) -> str:
    identity = ["-c", "user.name=Test", "-c", "user.email=test@example.org"]
    return subprocess.run(
        ["git", *identity, *arguments], cwd=place, check=True, capture_output=True, text=True
    ).stdout


@pytest.fixture
def image(tmp_path) -> Path:
    """A repository with the program of infra/, as in an image."""
    place = tmp_path / "image"
    (place / "infra").mkdir(parents=True)
    shutil.copy(ROOT / "infra" / "workspace.py", place / "infra")
    (place / "data.dvc").write_text("first\n")
    (place / "code.py").write_text("print('old')\n")
    git(place, "init", "-q")
    git(place, "add", ".")
    git(place, "commit", "-qm", "An image")
    return place


def run_workspace(image: Path, place: Path, *command: str) -> subprocess.CompletedProcess[str]:
    program = [sys.executable, str(image / "infra" / "workspace.py"), str(place), *command]
    return subprocess.run(program, capture_output=True, text=True)


def test_files_of_a_run_remain_after_the_container_and_the_code_is_the_images(image, tmp_path):
    place = tmp_path / "volume" / "dreamgym"
    assert run_workspace(image, place, sys.executable, "code.py").stdout == "old\n"
    (place / "data.dvc").write_text("of a run\n")
    git(place, "update-ref", "refs/exps/a-run", "HEAD")
    (image / "code.py").write_text("import os; print('new', os.environ['PYTHONPATH'])\n")
    git(image, "commit", "-qam", "A newer image")
    assert run_workspace(image, place, sys.executable, "code.py").stdout == f"new {place}\n"
    assert (place / "data.dvc").read_text() == "of a run\n" and "refs/exps/a-run" in git(place, "show-ref")


def test_a_file_that_both_sides_changed_is_named_and_nothing_starts(image, tmp_path):
    place = tmp_path / "dreamgym"
    run_workspace(image, place, "true")
    (place / "data.dvc").write_text("of a run\n")
    (image / "data.dvc").write_text("of the image\n")
    git(image, "commit", "-qam", "Newer data")
    refused = run_workspace(image, place, "echo", "started")
    assert refused.returncode == 1 and refused.stdout == ""
    assert "data.dvc" in refused.stderr and f"git -C {place} status" in refused.stderr
    assert (place / "data.dvc").read_text() == "of a run\n"


def test_compose_and_kubernetes_keep_the_workspace_on_a_volume():
    worker = yaml.safe_load((ROOT / "infra" / "compose.yaml").read_text())["services"]["worker"]
    manifest = yaml.safe_load((ROOT / "infra" / "kubernetes" / "worker.yaml").read_text())["spec"]
    container = manifest["template"]["spec"]["containers"][0]
    assert worker["command"] == container["command"]
    place = Path(worker["command"][2])
    volumes = [mount.split(":")[1] for mount in worker["volumes"]]
    mounts = [mount["mountPath"] for mount in container["volumeMounts"]]
    assert volumes == mounts == [str(place.parent)]
    assert [claim["metadata"]["name"] for claim in manifest["volumeClaimTemplates"]] == [
        container["volumeMounts"][0]["name"]
    ]
    assert f"mkdir {place.parent}" in (ROOT / "infra" / "Dockerfile").read_text()
