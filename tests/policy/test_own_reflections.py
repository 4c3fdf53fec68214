"""Reflections of a chat model: what it is asked, what is kept, and where it is refused."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from builders import VOCABULARY, make_episode, make_model, make_task
from foreign import CHATML, make_checkpoint

from components.config import CloningConfig
from components.errors import ConfigError
from components.language.engines.engine_protocol import Generation
from components.policy import own_reflections as module
from components.policy.behaviour_cloning import clone
from components.policy.early_experience import ExploredEpisode
from components.policy.own_reflections import has_leak, own_reflections, request_text
from components.policy.policy import Policy

FIRST, SECOND = "At desk 1: mug 1.", "You hold mug 1."


@pytest.fixture
def policy(tmp_path):
    """A tiny chat model with random weights."""
    template = CHATML.replace("{{ strftime_now('%d %b %Y') }}", "")
    make_checkpoint(tmp_path / "model", "llama", template=template, max_position_embeddings=4096)
    return Policy.load(tmp_path / "model", system="You act in a small room.")


def explored():
    """An episode of two steps; the first has two alternatives, the second none."""
    episode = make_episode(make_task(), ("go to desk 1", FIRST), ("take mug 1", SECOND))
    thoughts = ("first the desk", "now the mug")
    steps = tuple(
        replace(step, thought=thought) for step, thought in zip(episode.steps, thoughts, strict=True)
    )
    alternatives = ((("go to bed 1", "At bed 1: nothing."), ("wait", "Nothing happens.")), ())
    return ExploredEpisode(replace(episode, steps=steps), alternatives)


def scripted(policy, monkeypatch, texts, likelier=()):
    """Let the model write `texts`, one a step; those in `likelier` make the action likelier."""

    def write(policy, places, seed):
        return [texts[number] for number in range(len(places))], 7

    def logprobs(policy, places):
        return [-1.0 if thought in likelier else -2.0 for _, thought in places]

    monkeypatch.setattr(module, "_write", write)
    monkeypatch.setattr(module, "_logprobs", logprobs)


def test_the_request_shows_all_outcomes_and_nothing_later():
    entry = explored()
    step = entry.episode.steps[0]
    text = request_text(entry.episode.up_to(0), step, entry.alternatives[0])
    assert f"An expert chose this action: go to desk 1\nIt led to: {FIRST}" in text
    assert "- go to bed 1: At bed 1: nothing.\n- wait: Nothing happens." in text
    assert SECOND not in text and step.thought not in text


def test_a_reflection_that_makes_the_action_likelier_is_kept(policy, monkeypatch):
    scripted(policy, monkeypatch, ["the desk may hold a mug"], likelier=["the desk may hold a mug"])
    found = own_reflections(policy, [explored()], seed=0)
    assert found.thoughts == [["the desk may hold a mug", "now the mug"]]
    assert (found.kept, found.asked, found.tokens) == (1, 1, 7)


@pytest.mark.parametrize(("written", "likelier"), [("of no use", []), ("", [""])])
def test_others_leave_the_experts_thought(policy, monkeypatch, written, likelier):
    scripted(policy, monkeypatch, [written], likelier)
    found = own_reflections(policy, [explored()], seed=0)
    assert found.thoughts == [["first the desk", "now the mug"]] and found.kept == 0


@pytest.mark.parametrize(
    ("written", "kept"),
    [
        (f"then I see: {FIRST}", False),
        ("at the bed I read at bed 1: nothing.", False),
        ("the Expert goes to the desk", False),
        ("Action 1 is worse", False),
        ("the desk is near. the desk is near.", False),
        ("the action at desk 1 is safer. a bed holds no mug.", True),
    ],
    ids=["next state", "state of an alternative", "expert", "label", "repetition", "none"],
)
def test_a_reflection_with_a_leak_is_not_kept(policy, monkeypatch, written, kept):
    """The model finds the action likelier behind all of them."""
    scripted(policy, monkeypatch, [written], [written])
    found = own_reflections(policy, [explored()], seed=0)
    assert found.kept == kept and found.thoughts[0][0] == (written if kept else "first the desk")


def test_words_of_the_task_are_no_leak():
    entry = explored()
    step = entry.episode.steps[0]
    history = replace(entry.episode.up_to(0), task=make_task(instruction="buy the expert knife, option 2"))
    assert not has_leak("expert knife in option 2", history, step, entry.alternatives[0])
    assert has_leak("option 3", history, step, entry.alternatives[0])
    unchanged = replace(step, next_state=step.state)
    assert not has_leak(f"it stays: {step.state}", history, unchanged, ()), "the agent has seen it"


def test_the_likelihood_is_that_of_the_action_behind_the_thought(policy):
    """Against the sum of a plain forward pass over the conversation."""
    entry = explored()
    place = module._Place(0, entry.episode.up_to(1), entry.episode.steps[1], ())
    text, task = policy.text, entry.episode.task
    for thought in ("", "I want the mug"):
        (found,) = module._logprobs(policy, [(place, thought)])
        action = policy.vocabulary.reply("Action: take mug 1")
        first = entry.episode.steps[0]
        tokens = text.opening(task) + text.ask(task) + text.reply(first.thought, first.action)
        tokens += text.observation(first.next_state) + text.ask(task) + text.reply(thought, "take mug 1")
        with torch.no_grad():
            logits = torch.log_softmax(policy.model(torch.tensor([tokens])).logits[0].float(), dim=-1)
        start = len(tokens) - len(action)
        expected = sum(float(logits[place - 1, tokens[place]]) for place in range(start, len(tokens)))
        assert tokens[start:] == action
        assert found == pytest.approx(expected, abs=1e-3)


def test_a_real_model_writes_and_is_cloned(policy, tmp_path):
    """Of random weights: it may write nothing that ends, and the clone goes on with the experts' thoughts."""
    seen = []
    entry = explored()
    found = own_reflections(policy, [entry], seed=0, progress=lambda *now: seen.append(now))
    assert seen == [(1, 1)] and found.asked == 1 and found.tokens > 0
    assert own_reflections(policy, [entry], seed=0) == found, "the same seed writes the same"
    record = clone(
        policy, [entry.episode], CloningConfig(epochs=1, batch_tokens=512), 0, reflections=found.thoughts
    )
    assert record.steps >= 1


def test_an_answer_that_was_cut_is_not_kept(policy, monkeypatch):
    class Session:
        longest = 4096

        def generate(self, prompts, **options):
            return {row: Generation([5, 6], [0.0, 0.0], stopped=False) for row in prompts}

    engine = type("Engine", (), {"open": lambda self, rows, capacity: Session()})()
    monkeypatch.setattr(Policy, "engine", lambda self, seed: engine)
    found = own_reflections(policy, [explored()], seed=0)
    assert found.kept == 0 and found.tokens == 2


def test_a_small_backbone_is_refused():
    with pytest.raises(ConfigError, match="no chat model.*self_reflection"):
        own_reflections(Policy(make_model(), VOCABULARY), [explored()], seed=0)
