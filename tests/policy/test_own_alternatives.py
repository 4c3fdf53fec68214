"""Alternatives of a chat model: which replies give one, and what is executed."""

from __future__ import annotations

import pytest
from builders import make_episode, make_task
from foreign import CHATML, make_checkpoint

from components.config import CloningConfig
from components.environments.text_world.phrases import has_word
from components.language.engines.engine_protocol import Generation
from components.policy.behaviour_cloning import clone
from components.policy.early_experience import ExploredEpisode, explore
from components.policy.own_alternatives import MAX_SAMPLES, count_origins, own_alternatives
from components.policy.policy import Policy

STATE = "At desk 1: mug 1."
FIRST = ("go to desk 1", "go to bed 1", "look", "wait")
SECOND = ("take mug 1", "open drawer 1", "go to shelf 1")
MAX_NEW_TOKENS = 40


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory):
    """A tiny chat model with random weights, on disk."""
    directory = tmp_path_factory.mktemp("chat") / "model"
    template = CHATML.replace("{{ strftime_now('%d %b %Y') }}", "")
    make_checkpoint(directory, "llama", template=template, max_position_embeddings=4096)
    return directory


@pytest.fixture(scope="module")
def untrained(checkpoint):
    return Policy.load(checkpoint, system="You act in a small room.")


def episode(first=FIRST[0], second=SECOND[0]):
    return make_episode(make_task(), (first, STATE), (second, "You hold mug 1."))


@pytest.fixture(scope="module")
def policy(checkpoint):
    """The model after lessons with several actions in each of two states."""
    policy = Policy.load(checkpoint, system="You act in a small room.")
    lessons = [episode(first) for first in FIRST] + [episode(second=second) for second in SECOND]
    clone(policy, lessons, CloningConfig(epochs=150, learning_rate=5e-3), seed=0)
    return policy


def propose(policy, *episodes, seed=0, well_formed=(*FIRST, *SECOND).__contains__):
    return own_alternatives(policy, episodes, 3, well_formed, MAX_NEW_TOKENS, seed)


def scripted(policy, monkeypatch, replies):
    """Let the model write `replies` in turn, the last one for ever: (text, whether it came to an end)."""
    written = iter(replies)

    class Session:
        lengths = (0,)

        def room(self, row):
            return 4096

        def append(self, prompts):
            pass

        def rewind(self, lengths):
            pass

        def generate(self, prompts, **options):
            result = {}
            for row in prompts:
                text, stopped = next(written, replies[-1])
                result[row] = Generation(policy.vocabulary.reply(text), stopped=stopped)
            return result

    engine = type("Engine", (), {"open": lambda self, rows: Session()})()
    monkeypatch.setattr(Policy, "engine", lambda self, seed: engine)


def test_the_models_own_actions_in_each_state_are_proposed(policy):
    """It learnt them behind the prompts of episodes, so it is asked with these."""
    for seed in range(3):
        ((first, second),) = propose(policy, episode(), seed=seed).actions
        assert first and set(first) <= set(FIRST[1:]) and len(set(first)) == len(first)
        assert second and set(second) <= set(SECOND[1:]) and len(set(second)) == len(second)


def test_a_model_that_writes_no_well_formed_action_proposes_none(untrained):
    found = propose(untrained, episode())
    assert found.actions == [[[], []]]
    assert 2 * MAX_SAMPLES <= found.tokens <= 2 * MAX_SAMPLES * MAX_NEW_TOKENS, "it was asked to the bound"


def test_a_seed_gives_the_same_alternatives_again(policy):
    first = propose(policy, episode(), episode("wait"))
    assert propose(policy, episode(), episode("wait")) == first
    assert first.tokens > 0
    assert any(propose(policy, episode(), episode("wait"), seed=seed) != first for seed in (1, 2, 3))


def test_sampling_ends_where_the_model_is_full(policy, monkeypatch):
    task = make_task()
    opening = len(policy.text.opening(task) + policy.text.ask(task))

    def proposed(longest):
        monkeypatch.setattr(policy.model.config, "max_position_embeddings", longest)
        return propose(policy, episode()).actions[0]

    first, second = proposed(opening + MAX_NEW_TOKENS)
    assert first and not second
    assert proposed(opening + MAX_NEW_TOKENS - 1) == [[], []]


def test_duplicates_the_demonstrated_action_and_cut_or_malformed_replies_give_none(untrained, monkeypatch):
    replies = [
        ("Action: go to desk 1", True),
        ("Action: Go to  desk 1", True),
        ("Thought: to bed\nAction: go to bed 1", True),
        ("Action: go to bed 1", True),
        ("Action: look", False),
        ("I go", True),
        ("Action: ???", True),
        ("Action: wait", True),
    ]
    assert len(replies) == MAX_SAMPLES
    scripted(untrained, monkeypatch, [*replies, ("Action: wait", True)])
    ((first, second),) = propose(untrained, episode(), well_formed=has_word).actions
    assert first == ["go to bed 1", "wait"] and second == ["wait"]


def test_the_world_says_which_actions_are_well_formed(untrained, monkeypatch):
    scripted(untrained, monkeypatch, [("Action: fly", True), ("Action: look", True)])
    ((first, _),) = propose(untrained, episode(), well_formed=lambda action: action == "look").actions
    assert first == ["look"]


def test_no_more_is_sampled_than_needed(untrained, monkeypatch):
    names = ("look", "wait", "go to bed 1")
    scripted(untrained, monkeypatch, [(f"Action: {name}", True) for name in (*names, *names)])
    found = propose(untrained, episode())
    assert found.actions == [[list(names), list(names)]]
    assert found.tokens == 2 * sum(len(untrained.vocabulary.reply(f"Action: {name}")) for name in names)


def test_own_alternatives_are_executed_and_others_filled_up(world, played):
    """In the real engine, which answers an action that it does not admit, too."""
    experts = played["expert"][:2]
    drawn = explore(world, experts, 3, seed=0)
    assert explore(world, experts, 3, seed=0, proposals=[[[] for _ in one.steps] for one in experts]) == drawn

    admissible = [[pair[0] for pair in pairs] for pairs in drawn[0].alternatives]
    proposals = [
        [["go to nowhere 9", place[0].upper()] for place in admissible],
        [["look at it", "go to nowhere 9", "help"] for _ in experts[1].steps],
    ]
    explored = explore(world, experts, 3, seed=0, proposals=proposals)
    for entry, episode_proposals in zip(explored, proposals, strict=True):
        for pairs, own, step in zip(entry.alternatives, episode_proposals, entry.episode.steps, strict=True):
            actions = [action for action, _ in pairs]
            assert len(actions) == 3 and actions[: len(own)] == own
            assert len({action.casefold() for action in actions} - {step.action}) == 3
    sampled = sum(len(own) for episode_proposals in proposals for own in episode_proposals)
    assert count_origins(explored, proposals) == (sampled, len(experts[0].steps))


def test_an_alternative_that_was_not_executed_is_not_counted():
    entry = ExploredEpisode(episode(), ((("look", STATE), ("wait", STATE)), ()))
    assert count_origins([entry], [[["look", "go to bed 1"], ["help"]]]) == (1, 1)
