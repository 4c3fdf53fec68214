"""What an RL stage tells of itself: nothing that it did not measure, and what only the adapter can say."""

from __future__ import annotations

import math

import pytest
from builders import make_episode, make_task

from components.config import load_config
from components.environments import make_adapter
from components.language.examples import Example
from components.policy.loop import LoopState
from components.policy.rollout import Rollout
from flows.synthetic_rl import rl_outcome, told


def test_what_no_iteration_measured_is_no_metric():
    series = {"loss": [1.0, 2.0, math.nan], "logprob_gap": [math.nan] * 3, "long": [0.0] * 5 + [1.0] * 5}
    found = rl_outcome("real_rl", LoopState(series=series), {})
    assert {name: entry.value for name, entry in found.metrics.items()} == {
        "real_rl/loss": 1.5,
        "real_rl/long": 1.0,
    }
    assert found.series.keys() == {"real_rl/loss", "real_rl/logprob_gap", "real_rl/long"}


def test_impossible_actions_are_those_that_the_world_refused():
    adapter = make_adapter(load_config(None, ["environment.workers=1"]).environment)
    refusal = "Nothing happens at desk 1. Holding nothing."
    episode = make_episode(
        make_task(0),
        ("go to desk 1", "At desk 1: nothing. Holding nothing."),
        ("fly", refusal),
        ("look", refusal),
    )
    assert adapter.refused(refusal) and told(adapter, [Rollout(episode, Example([]))]) == {
        "impossible_actions": pytest.approx(2 / 3)
    }
    assert told(adapter, []) == {"impossible_actions": 0.0}
