"""`dreamgym collect`: what becomes of the data that was there. Real files; a real clone, engine, Prefect and DVC."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
FEW = ["data.train_tasks=2", "data.fidelity_tasks=1", "data.near_miss=0", "data.noisy=0", "data.random=0", "environment.workers=1"]


def test_new_data_of_a_fresh_clone_has_the_backbone_that_came_with_it(tmp_path):
    clone = tmp_path / "clone"
    subprocess.run(["git", "clone", "-q", str(ROOT), str(clone)], check=True)
    environment = {**os.environ, "COLUMNS": "200", "PREFECT_HOME": str(clone / ".dreamgym" / "prefect")}
    command = [sys.executable, "-m", "flows.cli", "collect", "--root", str(clone), *FEW]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=500)
    assert done.returncode == 0, done.stdout + done.stderr
    assert (clone / "data" / "backbone" / "model.safetensors").is_file()
    assert "2 tasks, 2 episodes" in done.stdout and "(12 files" in done.stdout
