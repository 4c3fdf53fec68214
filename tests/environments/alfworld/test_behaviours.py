"""The behaviour policies: what near misses and random play contain."""

from __future__ import annotations

import random
from collections import Counter

from alfworld_play import moments, obstacle_of
from builders import make_episode, make_task

from components.environments.alfworld.behaviours import make_behaviour, malformed
from components.environments.alfworld.goals import read_goal
from components.environments.alfworld.knowledge import Knowledge, read_knowledge
from components.environments.alfworld.reasoning import reason, think
from components.environments.alfworld.states import read_state

H = " Holding nothing."


def test_random_and_near_miss_play_contain_refused_actions(played):
    failed = {
        name: sum(read_state(s.next_state).event == "failed" for _, s in moments(e))
        for name, e in played.items()
    }
    assert failed["expert"] == 0 and failed["random"] > 20 and failed["near_miss"] > 20
    assert sum(e.success for e in played["expert"]) == 12 > sum(e.success for e in played["random"])
    senseless = {
        s.action
        for h, s in moments(played["random"])
        if obstacle_of(read_knowledge(h), s.action) == "no such command"
    }
    assert len(senseless) > 4
    actions = {step.action for name in ("random", "near_miss") for _, step in moments(played[name])}
    assert any("nothing" in action.split() for action in actions), "a word that states hold is no name"
    rng = random.Random(0)
    assert any("<success>" in malformed(Knowledge(receptacles=["desk 1"]), rng) for _ in range(200))


def test_only_steps_that_the_expert_decided_have_its_thought(played):
    """Nobody writes an expert's thought beside a mistake or a random action."""
    shares = {
        name: sum(bool(step.thought) for _, step in moments(e)) / len(moments(e))
        for name, e in played.items()
    }
    assert shares["expert"] == 1 and shares["random"] == 0
    assert 0.6 < shares["noisy"] < 0.9 and 0.2 < shares["near_miss"] < 0.6
    for name, episodes in played.items():
        for history, step in moments(episodes):
            if step.thought:
                goal = read_goal(history.task.instruction)
                assert step.thought == think(goal, read_knowledge(history)), name


def test_a_near_miss_brings_one_thing_twice_where_two_are_asked_for():
    room = "Room: bed 1, desk 1. Holding nothing."
    body = make_task(instruction="put two book in desk", initial_state=room)
    first_steps = [
        ("go to bed 1", "At bed 1: book 1, book 2." + H),
        ("take book 1 from bed 1", "Took book 1 from bed 1. Holding book 1."),
    ]
    first_steps += [
        ("go to desk 1", "At desk 1: pen 1. Holding book 1."),
        ("move book 1 to desk 1", "Moved book 1 to desk 1." + H),
    ]
    episode = make_episode(body, *first_steps)
    actions = Counter(
        make_behaviour("near_miss", body, seed)(episode, ["go to bed 1"])[1] for seed in range(50)
    )
    assert actions["take book 1 from desk 1"] > 5
    again = make_episode(
        body, *first_steps, ("take book 1 from desk 1", "Took book 1 from desk 1. Holding book 1.")
    )
    text = reason(again, "move book 1 to desk 1", "Moved book 1 to desk 1." + H, 0.0)
    assert text.endswith("there pen 1, pen want book: no. not done"), text
