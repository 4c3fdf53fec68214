"""`dreamgym collect` and the previous data, with a real clone, engine, Prefect and DVC."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from builders import make_episode, make_task

from components.config import load_config
from components.environments import make_adapter
from components.errors import DataError, EnvironmentFailure
from components.trajectories.store import DataLayout
from flows.jobs.collect import choose_tasks, write

ROOT = Path(__file__).parents[3]
FEW = [
    "data.train_tasks=2",
    "data.fidelity_tasks=1",
    "data.near_miss=0",
    "data.noisy=0",
    "data.random=0",
    "environment.workers=1",
]


def test_new_data_of_a_fresh_clone_has_the_backbone_that_came_with_it(tmp_path):
    clone = tmp_path / "clone"
    subprocess.run(["git", "clone", "-q", str(ROOT), str(clone)], check=True)
    parts = yaml.safe_load((clone / "data.dvc").read_text())["outs"]
    before = sum(part.get("nfiles", 1) for part in parts)  # as committed
    environment = {**os.environ, "COLUMNS": "200", "PREFECT_HOME": str(clone / ".dreamgym" / "prefect")}
    command = [sys.executable, "-m", "flows.cli", "collect", "--root", str(clone), *FEW]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=500)
    assert done.returncode == 0, done.stdout + done.stderr
    assert all(
        (clone / "data" / name / "model.safetensors").is_file()
        for name in ("alfworld/backbone", "backbones/qwen")
    )
    assert "2 tasks, 2 episodes" in done.stdout and f"({before} files" in done.stdout


def _files(folder):
    return {
        path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()
    }


def test_a_disk_that_is_full_in_the_middle_leaves_all_old_files(tmp_path, monkeypatch):
    layout = DataLayout.of(tmp_path, "alfworld")
    made = {name: make_task(number) for number, name in enumerate(("train", "fidelity", "test"))}
    tasks = {name: [task] for name, task in made.items()}
    played = {name: [make_episode(made[name], ("look", "Looked around."))] for name in ("train", "fidelity")}
    write.fn(load_config(), layout, tasks, played)
    old, written, fsync = _files(layout.root), [], os.fsync
    assert sorted(old) == [
        "settings.json",
        *(
            f"{place}.parquet"
            for place in (
                "tasks/fidelity",
                "tasks/test",
                "tasks/train",
                "trajectories/fidelity",
                "trajectories/train",
            )
        ),
    ]

    def full_after_two(descriptor: int) -> None:  # filling a real disk would hit everybody on the machine
        written.append(descriptor)
        if len(written) > 2:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", full_after_two)
    others = {name: [make_task(number + 5)] for number, name in enumerate(made)}
    with pytest.raises(DataError, match="disk is full.*Nothing that was there before has changed"):
        write.fn(load_config(None, ["data.seed=1"]), layout, others, played)
    assert _files(layout.root) == old
    monkeypatch.undo()
    write.fn(load_config(None, ["data.seed=1"]), layout, others, played)
    new = _files(layout.root)
    assert new.keys() == old.keys()
    assert {name for name in old if new[name] != old[name]} == {
        "settings.json",
        *(f"tasks/{name}.parquet" for name in made),
    }


def test_the_fidelity_set_has_worlds_that_no_policy_is_evaluated_in():
    config = load_config(None, ["data.train_tasks=30", "data.fidelity_tasks=4", "data.fidelity_worlds=6"])
    adapter, tasks = make_adapter(config.environment), choose_tasks.fn(config)
    seen = [adapter.unseen(task) for task in tasks["fidelity"]]
    assert seen == [False] * 4 + [True] * 6 and not any(map(adapter.unseen, tasks["train"]))
    assert [task.split for task in tasks["fidelity"]] == ["train"] * 4 + ["test"] * 6
    ids = [task.id for name in tasks for task in tasks[name]]
    assert len(ids) == len(set(ids)) == 30 + 10 + 200


def test_too_few_unseen_worlds_are_reported(monkeypatch):
    """The test split of official games is limited; here the adapter has no unseen world."""
    config = load_config(None, ["data.train_tasks=1", "data.fidelity_worlds=2"])
    monkeypatch.setattr(
        "components.environments.alfworld.adapter.AlfworldAdapter.unseen", lambda adapter, task: False
    )
    with pytest.raises(EnvironmentFailure, match="0 tasks in unseen worlds.*Lower data.fidelity_worlds"):
        choose_tasks.fn(config)
