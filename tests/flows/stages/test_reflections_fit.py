"""Demonstrations with reflections must fit the replies that every stage lets the policy write."""

from __future__ import annotations

import re
from types import SimpleNamespace

import pytest
from builders import AGENT, VOCABULARY, make_model

from components.config import load_config
from components.errors import ConfigError
from components.policy import own_reflections as own
from components.policy.early_experience import ExploredEpisode, explore, reflections
from components.policy.policy import Policy
from flows.checks.token_limits import require_reflections_fit
from flows.stages import clone

REFLECTING = "cloning.early_experience=self_reflection"


@pytest.fixture(scope="module")
def experts(played):
    return played["expert"][:2]


def longest_reply(adapter, world, experts) -> int:
    explored = explore(world, experts, clone.ALTERNATIVES, seed=0)
    thoughts = reflections(explored, adapter.reflect, adapter.progress)
    return max(
        len(AGENT.reply(thought, step.action))
        for entry, row in zip(explored, thoughts, strict=True)
        for thought, step in zip(row, entry.episode.steps, strict=True)
    )


def examples(adapter, experts, *overrides):
    """What the stage makes of the experts' episodes in the real engine."""
    config = load_config(None, ["seed=0", "cloning.behaviours=[expert]", *overrides])
    return clone._early_experience(config, adapter, Policy(make_model(), VOCABULARY), experts, dict)[0]


def test_a_limit_that_cuts_reflections_is_refused_with_one_that_does_not(adapter, world, experts):
    longest = longest_reply(adapter, world, experts)
    with pytest.raises(ConfigError) as refusal:
        examples(adapter, experts, REFLECTING, f"rl.max_new_tokens={longest - 1}")
    said = str(refusal.value)
    assert f"the longest has {longest}" in said and "demonstrations with reflections" in said
    proposed = re.findall(r"(rl\.\w+\.max_new_tokens=\d+)", said.split("Set ")[1])
    assert [one.split(".")[1] for one in proposed] == ["dream", "real", "baseline"]
    assert examples(adapter, experts, REFLECTING, *proposed)["reflections"]
    assert examples(adapter, experts, REFLECTING, f"rl.max_new_tokens={longest}")["reflections"]


def test_the_smallest_limit_of_the_stages_that_play_counts(experts):
    explored = [ExploredEpisode(experts[0], tuple(() for _ in experts[0].steps))]
    thoughts = [["because " * 20] * len(experts[0].steps)]

    def require(*overrides):
        require_reflections_fit(load_config(None, overrides), AGENT, explored, thoughts)

    require("rl.max_new_tokens=512")
    with pytest.raises(
        ConfigError, match=r"rl\.real\.max_new_tokens=8 .*Set rl\.real\.max_new_tokens=\d+\.$"
    ):
        require("rl.max_new_tokens=512", "rl.real.max_new_tokens=8")
    with pytest.raises(ConfigError, match=r"rl\.baseline\.max_new_tokens=8 .*Set rl\.baseline.*rl\.dream"):
        require("rl.max_new_tokens=512", "rl.dream.max_new_tokens=9", "rl.baseline.max_new_tokens=8")


def test_a_models_own_reflections_must_fit_too(adapter, experts, monkeypatch):
    def written(policy, explored, *_):
        thoughts = [["because " * 80] * len(entry.episode.steps) for entry in explored]
        return own.Reflections(thoughts, kept=1, asked=1, tokens=1)

    monkeypatch.setattr(clone, "require_conversations", lambda text: None)  # the tiny model is no chat model
    monkeypatch.setattr(clone, "own_reflections", written)
    monkeypatch.setattr(clone, "get_run_logger", lambda: SimpleNamespace(info=lambda *_: None))
    with pytest.raises(ConfigError, match=r"rl\.dream\.max_new_tokens=48 would cut"):
        examples(adapter, experts, "cloning.early_experience=own_reflection")


def test_a_clone_with_reflections_is_not_reused_with_smaller_limits():
    def key(*overrides):
        config = load_config(None, ["cloning.behaviours=[expert]", *overrides])
        return clone._limits_of_reflections(config)

    assert key() == {} and key("rl.max_new_tokens=8") == {}
    assert key(REFLECTING) != key(REFLECTING, "rl.real.max_new_tokens=8")
