"""A collection that was killed, or that a world broke, goes on with its finished episodes."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import text_worlds

from components.config.worlds.environment_config import EnvironmentConfig
from components.environments import make_adapter
from components.errors import EnvironmentFailure
from components.trajectories import recording
from components.trajectories.recording import collect, plan
from components.trajectories.store import write_transitions
from components.trajectories.unfinished_collection import UnfinishedCollection

ROOT = Path(__file__).parents[2]
MAX_STEPS = 6
ROWS = 4
HUNG_TASK = 5
CHILD = """
import sys
from pathlib import Path
from test_unfinished_collection import open_collection, play
play("text_worlds:SlowCounting", open_collection(Path(sys.argv[1])))
"""


def counting(factory="text_worlds:Counting", timeout=30.0):
    text = {"actions": ["add", "subtract"], "refusals": ["Nothing happens"]}
    gymnasium = {"factory": factory}
    return make_adapter(
        EnvironmentConfig(name="gymnasium", text=text, gymnasium=gymnasium, timeout_seconds=timeout)
    )


def episodes_of(adapter):
    return plan(adapter.tasks("train", 12, 0), {"random": 2}, 0)


def open_collection(directory, report=lambda _: None, **settings):
    return UnfinishedCollection(directory, {"max_steps": MAX_STEPS} | settings, TASKS, report)


def play(factory, unfinished=None, timeout=30.0, **options):
    adapter = counting(factory, timeout)
    return collect(adapter, EPISODES, MAX_STEPS, rows=ROWS, unfinished=unfinished, **options)


EPISODES = episodes_of(counting())
TASKS = list(dict.fromkeys(episode.task for episode in EPISODES))


def parquet_bytes(path, episodes):
    write_transitions(path, [step for episode in episodes for step in episode.steps])
    return path.read_bytes()


@pytest.fixture
def steps_of(monkeypatch):
    """Seeds of the tasks of which a step was played in this process, one entry for each step."""
    played = []
    reset, step = text_worlds.Counting.reset, text_worlds.Counting.step

    def noted_reset(self, *, seed=None, options=None):
        self.seed = seed
        return reset(self, seed=seed)

    def noted_step(self, action):
        played.append(self.seed)
        return step(self, action)

    monkeypatch.setattr(text_worlds.Counting, "reset", noted_reset)
    monkeypatch.setattr(text_worlds.Counting, "step", noted_step)
    return played


def test_a_killed_collection_goes_on_to_the_same_bytes(tmp_path, steps_of):
    stage = tmp_path / "stage"
    environment = {**os.environ, "PYTHONPATH": f"{ROOT}:{ROOT / 'tests'}:{Path(__file__).parent}"}
    child = subprocess.Popen([sys.executable, "-c", CHILD, str(stage)], env=environment)
    try:
        while not list(stage.glob("*.parquet")):
            assert child.poll() is None, "it ended before it could be killed"
            time.sleep(0.01)
    finally:
        child.send_signal(signal.SIGKILL)
        child.wait()
    unfinished = open_collection(stage)
    kept = dict(unfinished.finished)
    assert 0 < len(kept) < len(EPISODES)
    resumed = play("text_worlds:Counting", unfinished)
    missing = [
        step for episode in resumed if episode.steps[0].episode_id not in kept for step in episode.steps
    ]
    assert len(steps_of) == len(missing), "finished episodes are not played again"
    whole = play("text_worlds:Counting")
    assert parquet_bytes(tmp_path / "a.parquet", resumed) == parquet_bytes(tmp_path / "b.parquet", whole)


def test_a_task_that_hangs_is_named_and_costs_no_other_episode(tmp_path, monkeypatch, steps_of):
    hung = TASKS[HUNG_TASK]
    is_mended = []
    step = text_worlds.Counting.step

    def hang(self, action):
        if f"gymnasium/{self.seed}" == hung.id and not is_mended:
            time.sleep(5)
        return step(self, action)

    monkeypatch.setattr(text_worlds.Counting, "step", hang)
    progress = []
    with pytest.raises(EnvironmentFailure) as raised:
        play(
            "text_worlds:Counting",
            open_collection(tmp_path),
            timeout=0.1,
            on_batch=lambda done, count: progress.append(done),
        )
    said = str(raised.value)
    assert re.match(rf"2 of 24 episodes broke in each of 3 tries, as {hung.id}/random-0: .*no answer", said)
    assert f"22 finished ones are kept in {tmp_path}; these broke: {hung.id}/random-0, " in said
    assert "type the same again: only missing episodes are played" in said
    assert progress[-1] == 24, "the others were played"
    is_mended.append(True)
    steps_of.clear()
    resumed = play("text_worlds:Counting", open_collection(tmp_path))
    assert {f"gymnasium/{seed}" for seed in steps_of} == {hung.id}
    assert resumed == play("text_worlds:Counting")


def test_a_world_that_is_down_is_not_asked_for_every_episode(tmp_path, monkeypatch):
    asked = []

    def down(self, action):
        asked.append(action)
        raise OSError("connection refused")

    monkeypatch.setattr(text_worlds.Counting, "step", down)
    with pytest.raises(EnvironmentFailure, match="connection refused"):
        play("text_worlds:Counting", open_collection(tmp_path))
    batches = -(-recording.MOST_BROKEN // ROWS)
    assert len(asked) == batches * ROWS * 3
    assert not tmp_path.joinpath("settings.json").exists()


def test_other_settings_discard_what_was_played_and_say_which(tmp_path):
    said = []
    play("text_worlds:Counting", open_collection(tmp_path, said.append, data={"seed": 0, "random": 2}))
    again = open_collection(tmp_path, said.append, data={"seed": 0, "random": 2})
    assert len(again.finished) == 24 and said[0].startswith(
        "24 episodes of an interrupted collection are kept"
    )
    other = open_collection(tmp_path, said.append, data={"seed": 1, "random": 2})
    assert not other.finished and not tmp_path.exists()
    assert "other settings (data.seed): its episodes in" in said[1] and "discarded" in said[1]


def test_damaged_files_are_played_again(tmp_path):
    whole = play("text_worlds:Counting", open_collection(tmp_path))
    damaged = sorted(tmp_path.glob("*.parquet"))[1]
    damaged.write_bytes(damaged.read_bytes()[:100])
    said = []
    unfinished = open_collection(tmp_path, said.append)
    assert len(unfinished.finished) == 20 and "are played again" in said[0]
    assert play("text_worlds:Counting", unfinished) == whole
    assert len(open_collection(tmp_path).finished) == 24
