"""Early Experience with a chat model's own alternatives: what the stage executes, records and logs."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from builders import VOCABULARY, make_model

from components.config import load_config
from components.policy import own_reflections as reflecting
from components.policy.own_alternatives import OwnAlternatives
from components.policy.policy import Policy
from flows.stages import clone


@pytest.fixture
def stage(adapter, played, monkeypatch):
    """Runs the stage's Early Experience on two episodes: (mode, limit) -> (costs, explored, log lines)."""
    experts = played["expert"][:2]
    seen = []
    lines = []

    def written(policy, explored, *_):
        seen.extend(explored)
        thoughts = [["" for _ in entry.episode.steps] for entry in explored]
        return reflecting.Reflections(thoughts, kept=1, asked=2, tokens=7)

    monkeypatch.setattr(clone, "require_conversations", lambda text: None)  # the tiny model is no chat model
    monkeypatch.setattr(clone, "own_reflections", written)
    log = SimpleNamespace(info=lambda text, *values: lines.append(text % values))
    monkeypatch.setattr(clone, "get_run_logger", lambda: log)

    def run(mode, limit=47):
        limits = ["rl.max_new_tokens=256", f"rl.dream.max_new_tokens={limit}"]
        overrides = [f"cloning.early_experience={mode}", *limits]
        config = load_config(None, ["seed=0", "cloning.behaviours=[expert]", *overrides])
        policy = Policy(make_model(), VOCABULARY)
        return clone._early_experience(config, adapter, policy, experts, dict)[1], seen, lines

    return run


def test_a_model_without_well_formed_actions_is_filled_up_and_counted(stage):
    costs, explored, lines = stage("own_reflection")
    steps = sum(len(entry.episode.steps) for entry in explored)
    assert steps > 0
    assert all(len(pairs) == clone.ALTERNATIVES for entry in explored for pairs in entry.alternatives)
    figures = {name: costs[name] for name in clone.OWN_FIGURES}
    assert figures == {
        "alternatives_sampled": 0,
        "alternatives_filled_up": clone.ALTERNATIVES * steps,
        "reflections_asked": 2,
        "reflections_kept": 1,
    }
    assert costs["tokens_generated"] > 7, "the replies that gave no alternative, too"
    assert [line for line in lines if "alternatives" in line] == [
        f"0 alternatives are the model's own, {3 * steps} (100 %) were filled up from the admissible actions"
    ]


def test_own_alternatives_are_executed_and_counted(stage, adapter, monkeypatch):
    calls = []

    def sampled(policy, episodes, count, well_formed, max_new_tokens, seed):
        calls.append((count, well_formed("go to desk 1"), well_formed("fly"), max_new_tokens, seed))
        return OwnAlternatives([[["inventory", "help"] for _ in one.steps] for one in episodes], tokens=5)

    monkeypatch.setattr(clone, "own_alternatives", sampled)
    costs, explored, _ = stage("own_reflection")
    assert calls == [(clone.ALTERNATIVES, True, False, 47, 0)]
    places = [pairs for entry in explored for pairs in entry.alternatives]
    assert all([action for action, _ in pairs[:2]] == ["inventory", "help"] for pairs in places)
    assert costs["alternatives_sampled"] == 2 * len(places)
    assert costs["alternatives_filled_up"] == len(places)
    assert costs["tokens_generated"] == 12


@pytest.mark.parametrize("mode", ["world_modelling", "self_reflection"])
def test_other_modes_sample_nothing(stage, monkeypatch, mode):
    monkeypatch.setattr(Policy, "engine", lambda self, seed: pytest.fail("it was asked"))
    costs, _, lines = stage(mode, limit=256)
    assert set(costs) == {"real_interactions"} and not lines
