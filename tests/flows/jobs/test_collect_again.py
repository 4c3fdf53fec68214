"""`dreamgym collect` that a world broke goes on with the mended world: a real command, Prefect and DVC."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[3]
BROKEN_WORLD = """
from pathlib import Path
import text_worlds

HERE = Path(__file__).parent


class World(text_worlds.Counting):
    def reset(self, *, seed=None, options=None):
        self.seed = seed
        return super().reset(seed=seed)

    def step(self, action):
        with (HERE / "steps").open("a") as file:
            file.write(f"{self.seed}\\n")
        if (HERE / "broken").is_file() and self.seed % 3 == 0:
            raise OSError("the door is stuck")
        return super().step(action)
"""
WORLD = [
    "environment.name=gymnasium",
    "environment.gymnasium.factory=stuck_world:World",
    "environment.max_steps=4",
    "data.train_tasks=6",
    "data.fidelity_tasks=2",
    "data.fidelity_worlds=0",
    "data.expert=0",
    "data.noisy=0",
    "data.near_miss=0",
    "data.random=1",
    "evaluation.tasks=5",
    "experience_model.premise=false",
]
AUTHOR = ["-c", "user.name=a", "-c", "user.email=a@example.org"]


def _collect(world, root):
    """Type `dreamgym collect` in an empty repository of DVC."""
    if not root.exists():
        subprocess.run(["git", "init", "-q", str(root)], check=True)
        shutil.copy(ROOT / "constraints.txt", root)
        subprocess.run([sys.executable, "-m", "dvc", "init", "-q"], cwd=root, check=True)
        subprocess.run(["git", *AUTHOR, "commit", "-q", "-m", "empty"], cwd=root, check=True)
    environment = {**os.environ, "COLUMNS": "200", "PREFECT_HOME": str(root / ".dreamgym" / "prefect")}
    environment["PYTHONPATH"] = f"{ROOT}:{ROOT / 'tests'}:{world}"
    command = [sys.executable, "-m", "flows.cli", "collect", "--root", str(root), *WORLD]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=500)
    return done.returncode, " ".join((done.stdout + done.stderr).split())


def test_a_collection_that_a_world_broke_goes_on_with_the_mended_one(tmp_path):
    world = tmp_path / "world"
    world.mkdir()
    (world / "stuck_world.py").write_text(BROKEN_WORLD)
    (world / "broken").touch()
    code, said = _collect(world, tmp_path / "a")
    assert code == 1 and "broke in each of 3 tries" in said and "the door is stuck" in said, said
    played = set((world / "steps").read_text().split())
    stuck = {seed for seed in played if int(seed) % 3 == 0}
    assert 0 < len(stuck) < len(played), "some tasks break, some do not"
    (world / "broken").unlink()
    (world / "steps").unlink()
    code, said = _collect(world, tmp_path / "a")
    assert code == 0 and "episodes of an interrupted collection are kept" in said, said
    played_again = set((world / "steps").read_text().split())
    assert stuck <= played_again and played_again.isdisjoint(played - stuck)
    assert not (tmp_path / "a" / ".dreamgym" / "collect" / "gymnasium" / "behaviours").exists()
    code, said = _collect(world, tmp_path / "b")
    assert code == 0, said
    assert _files(tmp_path / "a" / "data") == _files(tmp_path / "b" / "data")


def _files(folder):
    return {
        path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()
    }
