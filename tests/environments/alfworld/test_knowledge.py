"""What an agent can know, compared with the engine: an action lacks a need where the engine refuses it."""

from __future__ import annotations

import random
from collections import Counter

import pytest
from alfworld_play import any_action, everything, moments, obstacle_of
from builders import make_episode, make_task

from components.environments.alfworld.embody import embody
from components.environments.alfworld.goals import Goal, read_goal
from components.environments.alfworld.knowledge import read_knowledge
from components.environments.alfworld.states import read_state
from components.records import Trajectory, Transition

H = " Holding nothing."


def test_an_action_lacks_a_need_exactly_where_the_engine_refuses_it(played, wild):
    counts = Counter()
    for history, step in everything(played) + moments(wild):
        obstacle = obstacle_of(read_knowledge(history), step.action)
        assert bool(obstacle) == (read_state(step.next_state).event == "failed"), (
            history.states,
            step.action,
            obstacle,
            step.next_state,
        )
        counts[obstacle if "belong" not in obstacle else "does not belong"] += 1
    expected = {
        "",
        "no such command",
        "no such place",
        "already there",
        "not there",
        "no door",
        "open already",
        "closed already",
        "not in it",
        "hand full",
        "closed",
        "not held",
        "does not belong",
        "wrong station",
        "not here",
        "no switch",
    }
    assert expected <= counts.keys(), expected - counts.keys()


def test_a_pen_cannot_be_heated_and_no_mug_lies_in_a_fridge_that_is_closed(world):
    """The rarest needs, tested on purpose in a world that an episode described."""
    task = make_task(instruction="put a hot mug in desk")
    body = embody(make_episode(task, ("go to shelf 1", "At shelf 1: mug 1, pen 1." + H)))
    world.reset([body])
    episode = Trajectory(body)
    expected = [
        "",
        "",
        "",
        "heat pen cannot be",
        "wrong station",
        "",
        "closed",
        "",
        "pen in fridge does not belong",
        "",
    ]
    actions = [
        "go to shelf 1",
        "take pen 1 from shelf 1",
        "go to microwave 1",
        "heat pen 1 with microwave 1",
        "cool pen 1 with microwave 1",
    ]
    actions += [
        "go to fridge 1",
        "move pen 1 to fridge 1",
        "open fridge 1",
        "move pen 1 to fridge 1",
        "go to desk 1",
    ]
    for number, (action, obstacle) in enumerate(zip(actions, expected, strict=True)):
        assert obstacle_of(read_knowledge(episode), action) == obstacle, action
        (answer,) = world.step([action])
        assert (read_state(answer.state).event == "failed") == bool(obstacle), action
        transition = Transition("t", "e", number, "", action, answer.state, 0.0, False)
        episode = episode.with_step(transition)


def test_all_needs_hold_for_admissible_commands_alone(world, tasks):
    rng, played = random.Random(2), [Trajectory(task) for task in tasks[:6]]
    world.reset(tasks[:6])
    for _ in range(12):
        for row, episode in enumerate(played):
            knowledge = read_knowledge(episode)
            for command in world.admissible[row]:
                assert not obstacle_of(knowledge, command), (episode.states, command)
            commands = {any_action(knowledge, rng) for _ in range(40)}
            assert {a for a in commands if not obstacle_of(knowledge, a)} <= set(world.admissible[row])
        useful = [
            [a for a in world.admissible[row] if not a.startswith(("look", "help", "inv", "exam"))]
            for row in range(6)
        ]
        actions = [rng.choice(choices) for choices in useful]
        for row, answer in enumerate(world.step(actions)):
            transition = Transition(
                "t", "e", len(played[row].steps), "", actions[row], answer.state, answer.reward, answer.done
            )
            played[row] = played[row].with_step(transition)


def test_known_places_hold_what_the_engine_shows_again(played, wild):
    """An arrival that reveals nothing shows what the knowledge contains already."""
    checked = 0
    for history, step in everything(played) + moments(wild):
        parsed, knowledge = read_state(step.next_state), read_knowledge(history)
        if parsed.event == "at" and parsed.door != "closed" and parsed.place in knowledge.contents:
            assert knowledge.things_in(parsed.place) == list(parsed.contents), (history.states, step.action)
            checked += 1
    assert checked > 50


def test_knowledge_grows_with_each_state():
    task = make_task(initial_state="Room: desk 1, fridge 1." + H)
    steps = [
        ("go to fridge 1", "At fridge 1: closed." + H),
        ("open fridge 1", "At fridge 1: open, egg 1, mug 1." + H),
        ("take mug 1 from fridge 1", "Took mug 1 from fridge 1. Holding mug 1."),
        ("cool mug 1 with fridge 1", "Cooled mug 1 with fridge 1. Holding cool mug 1."),
        ("go to desk 1", "At desk 1: desklamp 1. Holding cool mug 1."),
        ("use desklamp 1", "Turned on desklamp 1 at desk 1. Holding cool mug 1."),
        ("nonsense", "a state that cannot be read"),
        ("move mug 1 to desk 1", "Moved mug 1 to desk 1." + H),
    ]
    episode = make_episode(task, *steps)
    assert (
        read_knowledge(episode.up_to(1)).doors == {"fridge 1": "closed"}
        and not read_knowledge(episode.up_to(1)).contents
    )
    assert read_knowledge(episode.up_to(2)).find_object("mug") == "mug 1 at fridge 1"
    cooled = read_knowledge(episode.up_to(4))
    assert (cooled.holding, cooled.treated, cooled.contents) == (
        "mug 1",
        {"mug 1": {"cool"}},
        {"fridge 1": {"egg 1"}},
    )
    knowledge = read_knowledge(episode)
    assert (knowledge.place, knowledge.holding, knowledge.receptacles) == (
        "desk 1",
        "",
        ["desk 1", "fridge 1"],
    )
    assert knowledge.contents == {"fridge 1": {"egg 1"}, "desk 1": {"desklamp 1", "mug 1"}}
    assert (knowledge.lit, knowledge.lamps, knowledge.visited) == (
        {"desklamp 1"},
        {"desklamp 1": "desk 1"},
        {"desk 1", "fridge 1"},
    )
    assert (
        knowledge.find_object("mug", outside="desk") == ""
        and knowledge.find_object("mug") == "mug 1 at desk 1"
    )


@pytest.mark.parametrize(
    ("instruction", "goal"),
    [
        ("put a mug in desk", Goal("pick_and_place_simple", "mug", "desk", "")),
        ("Put some mug on desk.", Goal("pick_and_place_simple", "mug", "desk", "")),
        ("put a hot mug in desk", Goal("pick_heat_then_place_in_recep", "mug", "desk", "")),
        ("cool some mug and put it in desk", Goal("pick_cool_then_place_in_recep", "mug", "desk", "")),
        ("clean some mug and put it in desk", Goal("pick_clean_then_place_in_recep", "mug", "desk", "")),
        ("find two mug and put them in desk", Goal("pick_two_obj_and_place", "mug", "desk", "")),
        ("examine the mug with the desklamp", Goal("look_at_obj_in_light", "mug", "", "desklamp")),
        ("put a wet mug in desk", None),
        ("put a mug in desk and go", None),
        ("", None),
    ],
)
def test_instructions_are_parsed(instruction, goal):
    assert read_goal(instruction) == goal
    if goal:
        assert goal.verb == {"heat": "heat", "cool": "cool", "clean": "clean"}.get(
            goal.family.split("_")[1], ""
        )
