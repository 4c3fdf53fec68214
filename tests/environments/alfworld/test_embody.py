"""The real game that a dreamed episode described, and the dreams that describe none."""

from __future__ import annotations

import pytest
from builders import make_episode, make_task

from components.environments.alfworld.embody import embody
from components.environments.alfworld.games import GameSpec
from components.errors import EnvironmentFailure

H = " Holding nothing."
SHELF = ("go to shelf 1", "At shelf 1: mug 1." + H)
TOOK = ("take mug 1 from shelf 1", "Took mug 1 from shelf 1. Holding mug 1.")


def test_real_successes_replay_to_the_same_states_and_reward(adapter, world, played):
    episodes = [e for name in ("expert", "noisy", "near_miss") for e in played[name] if e.success]
    assert len({e.task.family for e in episodes}) == 6 and len(episodes) > 15
    bodies = [adapter.embody(episode) for episode in episodes]
    assert all(body.spec != e.task.spec for body, e in zip(bodies, episodes, strict=True)), (
        "the real spec must not be looked at"
    )
    assert world.reset(bodies) == [episode.task.initial_state for episode in episodes]
    for step in range(max(len(e.steps) for e in episodes)):
        answers = world.step([e.steps[step].action if step < len(e.steps) else None for e in episodes])
        for episode, answer in zip(episodes, answers, strict=True):
            if answer is not None:
                real = episode.steps[step]
                assert (answer.state, answer.reward, answer.done) == (real.next_state, real.reward, real.done)


def test_objects_lie_where_the_dream_first_showed_them():
    episode = make_episode(
        make_task(parent="t9"),
        ("go to fridge 1", "At fridge 1: closed." + H),
        ("open fridge 1", "At fridge 1: open, egg 1, mug 1." + H),
        ("take mug 1 from fridge 1", "Took mug 1 from fridge 1. Holding mug 1."),
        ("go to desk 1", "At desk 1: pen 1. Holding mug 1."),
        ("move mug 1 to desk 1", "Moved mug 1 to desk 1." + H),
        ("go to fridge 1", "At fridge 1: open, egg 1." + H),
        ("go to desk 1", "At desk 1: mug 1, pen 1." + H),
        won=True,
    )
    body = embody(episode)
    world = GameSpec.from_json(body.spec)
    assert world.placement == {"egg 1": "fridge 1", "mug 1": "fridge 1", "pen 1": "desk 1"}
    assert (world.family, world.target, world.parent, world.instruction) == (
        "pick_and_place_simple",
        "mug",
        "desk",
        "put a mug in desk",
    )
    assert world.receptacles == ("desk 1", "fridge 1", "microwave 1", "shelf 1")
    assert (body.id, body.split, body.parent, body.generated) == ("t0/embodied", "train", "", False)
    assert (body.initial_state, body.instruction) == (episode.task.initial_state, episode.task.instruction)


@pytest.mark.parametrize(
    ("steps", "placement"),
    [
        ([SHELF, ("go to fridge 1", "At fridge 1: open, mug 1." + H)], {"mug 1": "shelf 1"}),
        ([SHELF, TOOK, SHELF], {"mug 1": "shelf 1"}),
        ([TOOK], {"mug 1": "shelf 1"}),
        (
            [SHELF, ("x", "Moved pen 1 to desk 1." + H), ("go to desk 1", "At desk 1: pen 1." + H)],
            {"mug 1": "shelf 1"},
        ),
        (
            [SHELF, ("use desklamp 1", "Turned on desklamp 1 at desk 1." + H)],
            {"desklamp 1": "desk 1", "mug 1": "shelf 1"},
        ),
        ([SHELF, ("go to sofa 1", "At sofa 1: mug 2, pen 1." + H)], {"mug 1": "shelf 1"}),
        (
            [SHELF, ("go to desk 1", "At desk 1: unicorn 1, shelf 1, pen 1." + H)],
            {"mug 1": "shelf 1", "pen 1": "desk 1"},
        ),
        ([SHELF, ("go to desk 1", "nonsense")], {"mug 1": "shelf 1"}),
    ],
)
def test_the_first_mention_counts_where_the_engine_knows_thing_and_place(world, steps, placement):
    """What the dream says beside it has no place in a real game: the replay then shows another state, or the
    action fails.
    """
    body = embody(make_episode(make_task(), *steps, won=True))
    assert GameSpec.from_json(body.spec).placement == placement
    assert world.reset([body]) == [body.initial_state]


@pytest.mark.parametrize(
    ("steps", "words"),
    [
        ([("go to shelf 1", "At shelf 1: pen 1." + H)], "has no mug for 'put a mug in desk'"),
        ([("go to sofa 1", "At sofa 1: mug 1." + H)], "has no mug"),
        ([("x", "Moved mug 1 to shelf 1." + H), SHELF], "has no mug"),
        ([("go to shelf 1", "nonsense")], "has no mug"),
        ([("go to desk 1", "At desk 1: mug 1." + H)], "'put a mug in desk' is done before anyone acts"),
    ],
)
def test_a_dream_whose_goal_has_no_game_is_refused(steps, words):
    with pytest.raises(EnvironmentFailure, match=words):
        embody(make_episode(make_task(), *steps, won=True))


@pytest.mark.parametrize(
    ("instruction", "words"),
    [
        ("be happy", "'be happy' follows no template"),
        ("put a unicorn in desk", "asks for what no game has"),
        ("put a mug in spaceship", "asks for what no game has"),
        ("look at mug under the sun", "asks for what no game has"),
        ("put a mug in sofa", "no sofa that holds mug"),
        ("put two mug in desk", "has no mug"),
        ("put a clean mug in desk", "no way to clean mug"),
        ("put a hot pen in desk", "no way to heat pen"),
        ("look at mug under the desklamp", "has no desklamp"),
    ],
)
def test_a_dreamed_task_that_its_world_cannot_hold_is_refused(instruction, words):
    task = make_task(instruction=instruction)
    with pytest.raises(EnvironmentFailure, match=words):
        embody(make_episode(task, ("go to shelf 1", "At shelf 1: mug 1, pen 1." + H), won=True))


@pytest.mark.parametrize(
    ("instruction", "things"),
    [
        ("put a mug in desk", "mug 1"),
        ("put two mug in desk", "mug 1, mug 2"),
        ("put a hot mug in desk", "mug 1"),
        ("put a cool mug in desk", "mug 1"),
        ("look at mug under the desklamp", "desklamp 1, mug 1"),
    ],
)
def test_every_embodied_world_is_loaded_by_the_engine(world, instruction, things):
    """Also one that shows no more than its goal needs: the engine refuses games whose goal is out of
    reach.
    """
    episode = make_episode(
        make_task(instruction=instruction), ("go to shelf 1", f"At shelf 1: {things}." + H), won=True
    )
    assert world.reset([embody(episode)]) == [episode.task.initial_state]
    (answer,) = world.step(["go to shelf 1"])
    assert answer.state == episode.steps[0].next_state and answer.reward == 0


def test_a_plain_target_in_its_place_is_no_obstacle_where_two_or_a_hot_one_are_asked_for(world):
    for instruction, things in (("put two mug in desk", "mug 1"), ("put a hot mug in desk", "mug 1")):
        task = make_task(instruction=instruction)
        steps = [("go to desk 1", f"At desk 1: {things}." + H), ("go to shelf 1", "At shelf 1: mug 2." + H)]
        body = embody(make_episode(task, *steps, won=True))
        assert GameSpec.from_json(body.spec).placement == {"mug 1": "desk 1", "mug 2": "shelf 1"}
        world.reset([body])
        assert world.step(["go to desk 1"])[0].reward == 0
