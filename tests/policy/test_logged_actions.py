"""Logged actions: a clone takes those that it has memorised, whatever it would have done before."""

from __future__ import annotations

from dataclasses import replace

import pytest
from builders import VOCABULARY, make_episode, make_model, make_task, with_thoughts
from foreign import CHATML, make_checkpoint

from components.config import CloningConfig
from components.language.backbone import load_backbone
from components.policy.behaviour_cloning import clone
from components.policy.logged_actions import same_actions
from components.policy.policy import Policy


@pytest.fixture(scope="module")
def lesson(lessons):
    return with_thoughts(lessons[0], *(f"step {number}" for number in range(len(lessons[0].steps))))


@pytest.fixture(scope="module")
def cloned(lesson):
    policy = Policy(make_model(hidden=32, seed=2), VOCABULARY, max_new_tokens=24)
    clone(policy, [lesson], CloningConfig(epochs=150, learning_rate=8e-3), seed=0)
    return policy


def test_a_clone_takes_the_memorised_actions_and_no_others(cloned, lesson):
    steps = list(lesson.steps)
    steps[1] = replace(steps[1], action="go to nowhere 9")
    other = replace(lesson, steps=tuple(steps))
    same, changed = same_actions(cloned, [lesson, other])
    assert same == [True] * len(steps)
    assert changed[:2] == [True, False] and len(changed) == len(steps), (
        "it reads the logged action and goes on"
    )


def test_a_chat_model_takes_logged_actions_of_several_lines(tmp_path):
    code = "for n in range(2):\n    print(n,  n)"
    base = make_checkpoint(tmp_path / "chat", "llama", template=CHATML, max_position_embeddings=1024)
    policy = Policy(*load_backbone(base, system="A shell."), max_new_tokens=60)
    episode = make_episode(make_task(), (code, "0 0\n1 1"), ("exit  0 ", "bye"))
    clone(policy, [episode], CloningConfig(epochs=150, learning_rate=5e-3), seed=0)
    assert same_actions(policy, [episode]) == [[True, True]]


def test_a_batch_equals_single_episodes(cloned, lesson):
    short = replace(lesson, steps=lesson.steps[:2])
    assert same_actions(cloned, [lesson, short]) == [
        *same_actions(cloned, [lesson]),
        *same_actions(cloned, [short]),
    ]


def test_reading_ends_where_the_model_is_full(lesson):
    policy = Policy(make_model(max_positions=96), VOCABULARY, max_new_tokens=24)
    (steps,) = same_actions(policy, [lesson])
    assert len(steps) < len(lesson.steps)


def test_an_untrained_policy_takes_none(lesson):
    policy = Policy(make_model(), VOCABULARY, max_new_tokens=8)
    assert not any(same_actions(policy, [lesson])[0])
