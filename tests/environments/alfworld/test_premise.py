"""A premise: read of real episodes, refused where it cannot be, kept to by the reasoning and by the
states.
"""

from dataclasses import replace

import pytest
from builders import make_episode, make_task

from components.environments.alfworld.coherence import contradiction
from components.environments.alfworld.goals import read_goal
from components.environments.alfworld.premise import needed_kinds, objection, premise, read_premise
from components.environments.alfworld.reasoning import reason

H = " Holding nothing."
ROOM = "Room: desk 1, drawer 1, microwave 1, shelf 1." + H
BODY = make_task(instruction="put a mug in shelf", initial_state=ROOM)
TWO = make_task(instruction="put two mug in shelf", initial_state=ROOM)
LIGHT = make_task(instruction="look at book under the desklamp", initial_state=ROOM)


def test_an_experts_episode_shows_its_premise_and_no_real_one_is_objected_to(played):
    families = set()
    for episode in [e for episodes in played.values() for e in episodes]:
        shown_premise = premise(episode)
        assert shown_premise or not episode.success, episode.states
        if shown_premise:
            goal = read_goal(episode.task.instruction)
            assert len(read_premise(shown_premise)) == sum(needed_kinds(goal).values())
            assert objection(episode.task, shown_premise) == "", (episode.task.instruction, shown_premise)
            families.add(episode.task.family)
    assert len(families) == 6


def test_no_real_state_contradicts_the_episodes_own_premise(played):
    checked = 0
    for episode in [e for episodes in played.values() for e in episodes]:
        assumed = replace(episode, premise=premise(episode))
        for step in episode.steps if assumed.premise else ():
            history = assumed.up_to(step.step)
            assert history.premise and contradiction(history, step.next_state) == "", (
                assumed.premise,
                history.states,
                step.action,
            )
            checked += 1
    assert checked > 500


def test_the_place_where_a_thing_was_put_down_is_not_its_home():
    steps = [
        ("go to desk 1", "At desk 1: mug 1." + H),
        ("take mug 1 from desk 1", "Took mug 1 from desk 1. Holding mug 1."),
        ("move mug 1 to shelf 1", "Moved mug 1 to shelf 1." + H),
        ("look", "At shelf 1: mug 1." + H),
    ]
    assert premise(make_episode(BODY, *steps)) == "mug 1 desk 1"
    assert premise(make_episode(TWO, *steps)) == ""
    assert premise(make_episode(BODY, ("go to drawer 1", "At drawer 1: open, pen 1." + H))) == ""


@pytest.mark.parametrize(
    ("task", "text", "reason"),
    [
        (BODY, "", "malformed"),
        (BODY, "mug 1 at desk 1", "malformed"),
        (BODY, "mug 1 desk 1, , mug 2 desk 1", "malformed"),
        (BODY, "pen 1 desk 1", "not what the goal needs"),
        (BODY, "mug 1 desk 1, mug 2 desk 1", "not what the goal needs"),
        (TWO, "mug 1 desk 1", "not what the goal needs"),
        (LIGHT, "book 1 desk 1", "not what the goal needs"),
        (BODY, "mug 1 desk 2", "no such place"),
        (LIGHT, "book 1 desk 1, desklamp 1 drawer 1", "does not belong there"),
        (BODY, "mug 1 shelf 1", "done from the start"),
        (TWO, "mug 1 shelf 1, mug 2 shelf 1", "done from the start"),
        (make_task(instruction="dance", initial_state=ROOM), "mug 1 desk 1", "malformed"),
        (BODY, "mug 1 desk 1", ""),
        (TWO, "mug 1 desk 1, mug 2 shelf 1", ""),
        (LIGHT, "book 1 desk 1, desklamp 1 shelf 1", ""),
        (make_task(instruction="put a hot mug in shelf", initial_state=ROOM), "mug 1 shelf 1", ""),
    ],
)
def test_an_impossible_premise_is_objected_to(task, text, reason):
    assert objection(task, text) == reason


def test_a_dream_keeps_to_its_premise_until_the_place_has_been_seen():
    dream = replace(make_episode(BODY), premise="mug 1 desk 1")
    assert contradiction(dream, "At desk 1: pen 1." + H) == "mug 1 should be there"
    assert contradiction(dream, "At desk 1: mug 1, pen 1." + H) == ""
    assert contradiction(dream, "At drawer 1: open, mug 1." + H) == "mug 1 is at desk 1"
    assert (
        contradiction(dream, "At drawer 1: closed." + H)
        == contradiction(dream, "At drawer 1: open, mug 2." + H)
        == ""
    )
    taken = [
        ("go to desk 1", "At desk 1: mug 1." + H),
        ("take mug 1 from desk 1", "Took mug 1 from desk 1. Holding mug 1."),
    ]
    assert (
        contradiction(
            replace(make_episode(BODY, *taken), premise="mug 1 desk 1"), "At desk 1: nothing. Holding mug 1."
        )
        == ""
    )


def test_the_reasoning_names_what_the_premise_puts_in_a_place():
    dream = replace(make_episode(BODY), premise="mug 1 desk 1")
    assert reason(dream, "go to desk 1", "At desk 1: mug 1." + H, 0.0).endswith(
        "works, new, mug 1 desk 1 want desk 1: yes, with mug 1"
    )
    assert reason(dream, "go to shelf 1", "At shelf 1: nothing." + H, 0.0).endswith(
        "works, new, lacks mug, mug 1 desk 1 want shelf 1: no"
    )
    assert reason(dream, "go to drawer 1", "At drawer 1: closed." + H, 0.0).endswith("works, new")
