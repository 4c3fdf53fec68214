"""Metrics of an RL stage: only what was measured, and figures that need the adapter."""

from __future__ import annotations

import math

import pytest
from builders import make_episode, make_task

from components.config import load_config
from components.environments import make_adapter
from components.language.training.examples import Example
from components.policy.rl.loop_state import LoopState
from components.policy.rollout import Rollout
from flows.run.training.rl_training import finish_training, impossible_actions


class SavedPolicy:
    """A policy that can only be saved."""

    def save(self, directory):
        directory.mkdir()


def test_a_curve_without_values_has_no_metric(tmp_path):
    series = {"loss": [1.0, 2.0, math.nan], "logprob_gap": [math.nan] * 3, "long": [0.0] * 5 + [1.0] * 5}
    found = finish_training("real_rl", SavedPolicy(), LoopState(series=series), tmp_path)
    assert found.outputs == {"policy": "policy"}
    assert {name: entry.value for name, entry in found.metrics.items()} == {
        "real_rl/loss": 1.5,
        "real_rl/long": 1.0,
    }
    assert found.series.keys() == {"real_rl/loss", "real_rl/logprob_gap", "real_rl/long"}


def test_impossible_actions_are_those_that_the_environment_refused():
    adapter = make_adapter(load_config(None, ["environment.workers=1"]).environment)
    refusal = "Nothing happens at desk 1. Holding nothing."
    episode = make_episode(
        make_task(0),
        ("go to desk 1", "At desk 1: nothing. Holding nothing."),
        ("fly", refusal),
        ("look", refusal),
    )
    assert adapter.refused(refusal) and impossible_actions(adapter, [Rollout(episode, Example([]))]) == {
        "impossible_actions": pytest.approx(2 / 3)
    }
    assert impossible_actions(adapter, []) == {"impossible_actions": 0.0}
