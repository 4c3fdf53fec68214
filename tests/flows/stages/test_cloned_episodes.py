"""The recorded episodes that the policy is cloned from, and those that RL mixes in."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest
from builders import make_task, make_transition

from components.config import load_config
from components.errors import TrainingError
from components.records import Trajectory
from flows.run import run_data

PLAYED = [
    ("expert", 1.0),
    ("noisy", 0.0),
    ("expert", 0.0),
    ("near_miss", 1.0),
    ("expert", 1.0),
    ("random", 0.0),
]


def chosen(monkeypatch, behaviours, *overrides, most=9):
    """Return the numbers of the episodes above that are cloned."""
    episodes = [
        Trajectory(
            make_task(n),
            (make_transition(0, f"e{n}", f"t{n}", reward=reward, done=True, behaviour=behaviour),),
        )
        for n, (behaviour, reward) in enumerate(PLAYED)
    ]
    monkeypatch.setattr(run_data, "stream_training_episodes", lambda run, train: iter(episodes))
    run = SimpleNamespace(config=load_config(None, [f"cloning.demonstrations={most}", *overrides]))
    return [episodes.index(episode) for episode in run_data.episodes_to_clone(run, Path(), behaviours)]


def test_only_successful_expert_episodes_and_all_others_are_cloned(monkeypatch):
    assert chosen(monkeypatch, ["expert"]) == [0, 4]
    assert chosen(monkeypatch, ["noisy", "near_miss"]) == [1, 3]
    assert chosen(monkeypatch, ["expert", "noisy", "near_miss", "random"]) == [0, 1, 3, 4, 5]
    assert chosen(monkeypatch, ["expert", "random"], most=2) == [0, 4]


def test_only_successes_leaves_out_all_failures(monkeypatch):
    everyone = ["expert", "noisy", "near_miss", "random"]
    assert chosen(monkeypatch, everyone, "cloning.only_successes=true") == [
        number for number, (_, reward) in enumerate(PLAYED) if reward
    ]


def test_without_an_episode_to_clone_the_message_says_so(monkeypatch):
    monkeypatch.setitem(globals(), "PLAYED", [("expert", 0.0)])
    with pytest.raises(TrainingError, match="no episode of expert or noisy .of an expert, or with "):
        chosen(monkeypatch, ["expert", "noisy"])
