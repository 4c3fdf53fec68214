"""Which episodes cloning learns from when they are drawn by their advantage."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from builders import VOCABULARY, make_episode, make_model, make_task, with_unknown_outcome
from pydantic import ValidationError

from components.config import CloningConfig
from components.policy import behaviour_cloning
from components.policy.behaviour_cloning import MAX_WEIGHT, advantage_weights, clone, count_tokens
from components.policy.formats.demonstrations import render_demonstration
from components.policy.policy import Policy

EASY, HARD = make_task(0), make_task(1)
WON, LOST = (make_episode(EASY, ("go", "s"), won=won) for won in (True, False))
RARE = make_episode(HARD, ("look", "s"), won=True)
FAILURES = [make_episode(HARD, ("wait", "s")) for _ in range(3)]


def test_the_weight_is_the_exponential_of_the_advantage_over_the_temperature():
    weights = advantage_weights([WON, LOST, RARE, *FAILURES], 0.5)
    expected = [0.5, -0.5, 0.75, -0.25, -0.25, -0.25]
    assert weights == pytest.approx([math.exp(advantage / 0.5) for advantage in expected])
    assert advantage_weights([WON, WON], 0.5) == [1.0, 1.0], "a task that is always won has no advantage"
    assert advantage_weights([RARE, *FAILURES], 0.01)[0] == pytest.approx(MAX_WEIGHT)


def test_an_unknown_outcome_has_no_advantage_and_changes_that_of_no_other_episode():
    unknown = with_unknown_outcome(LOST)
    assert advantage_weights([WON, LOST, unknown], 0.5) == [*advantage_weights([WON, LOST], 0.5), 1.0]
    assert advantage_weights([unknown], 0.5) == [1.0]


def drawn_actions(monkeypatch, temperature, seed=0, episodes=(RARE, *FAILURES) * 50):
    """Return the first action of each episode that is trained on."""
    drawn = []
    monkeypatch.setattr(behaviour_cloning, "_train", lambda *_: None)
    render = behaviour_cloning.render_demonstration
    monkeypatch.setattr(
        behaviour_cloning,
        "render_demonstration",
        lambda text, episode: drawn.append(episode.steps[0].action) or render(text, episode),
    )
    policy = Policy(make_model(), VOCABULARY)
    clone(policy, episodes, CloningConfig(advantage_temperature=temperature, behaviours=["noisy"]), seed)
    monkeypatch.undo()
    return drawn


def test_episodes_are_drawn_in_proportion_to_their_weights(monkeypatch):
    assert drawn_actions(monkeypatch, 0.0) == ["look", "wait", "wait", "wait"] * 50
    drawn = drawn_actions(monkeypatch, 0.5)
    share = 1 / (1 + 3 * math.exp(-2))
    assert len(drawn) == 200
    assert drawn.count("look") / 200 == pytest.approx(share, abs=0.1)
    assert drawn == drawn_actions(monkeypatch, 0.5) != drawn_actions(monkeypatch, 0.5, seed=1)


def test_reflections_need_each_demonstration():
    with pytest.raises(ValidationError, match="advantage_temperature: draws demonstrations anew"):
        CloningConfig(advantage_temperature=0.5, early_experience="self_reflection")


def test_an_episode_without_thoughts_is_rendered_as_actions_alone():
    policy = Policy(make_model(), VOCABULARY)
    thoughtful = replace(WON, steps=tuple(replace(step, thought="go there") for step in WON.steps))
    bare = thoughtful.without_thoughts()
    assert bare == WON != thoughtful
    lengths = [
        sum(
            segment.predicted for segment in behaviour_cloning.render_demonstration(policy.text, one).segments
        )
        for one in (thoughtful, bare)
    ]
    assert lengths[0] > lengths[1] > 0


def test_a_tiny_temperature_overflows_nothing():
    assert advantage_weights([RARE, *FAILURES], 1e-9) == [pytest.approx(MAX_WEIGHT), 0.0, 0.0, 0.0]


def test_episodes_of_one_weight_are_all_cloned(monkeypatch):
    assert drawn_actions(monkeypatch, 0.5, episodes=[WON, RARE] * 20) == ["go", "look"] * 20


@pytest.mark.parametrize("kind", ["none", "a little world", "a large world", "reflections"])
def test_early_experience_trains_on_as_many_tokens_as_plain_cloning(monkeypatch, kind):
    """A large world takes half of them; reflections double the examples and halve the epochs."""
    trained = []

    def record(policy, examples, config, epochs, *_):
        trained.append((epochs, count_tokens(examples)))

    monkeypatch.setattr(behaviour_cloning, "_train", record)
    policy, episodes = Policy(make_model(), VOCABULARY), [RARE] * 4
    demonstrations = [render_demonstration(policy.text, episode) for episode in episodes]
    extra = {
        "none": {},
        "a little world": {"world": demonstrations[:1]},
        "a large world": {"world": demonstrations * 30},
        "reflections": {"reflections": [[""] for _ in episodes]},
    }[kind]
    clone(policy, episodes, CloningConfig(epochs=3), 0, **extra)
    total = 3 * count_tokens(demonstrations)
    assert sum(epochs * tokens for epochs, tokens in trained) == pytest.approx(total)
    shares = {
        "none": [1],
        "a little world": [1 / 12, 11 / 12],
        "a large world": [0.5, 0.5],
        "reflections": [1],
    }
    assert [epochs * tokens / total for epochs, tokens in trained] == pytest.approx(shares[kind])
