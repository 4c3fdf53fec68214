"""Generated games: what they hold, that the real engine loads them, and that a searching agent can win
them.
"""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from components.environments.alfworld import games
from components.environments.alfworld.adapter import is_unseen_floor
from components.environments.alfworld.games import (
    AFFORDS,
    FAMILIES,
    HOLDS,
    STATIONS,
    TREATMENTS,
    GameSpec,
    kind,
    make_game,
)
from components.environments.alfworld.goals import read_goal
from components.errors import EnvironmentFailure
from components.records import Task, Trajectory, Transition

PLANS = [(family, floor) for family in FAMILIES for floor in games.floors(family)]


def make_game_task(world: GameSpec) -> Task:
    return Task(
        f"{world.family}/{world.floor}",
        "alfworld",
        "train",
        world.instruction,
        games.initial_state(world),
        world.family,
        world.to_json(),
    )


def play_expert(adapter, world, tasks, limit):
    """Episodes of the searching expert, up to `limit` steps each."""
    assert world.reset(tasks) == [task.initial_state for task in tasks]
    actors = [adapter.behaviour("expert", task, 0) for task in tasks]
    played = [Trajectory(task) for task in tasks]
    for step in range(limit):
        actions = [
            None if e.success else actors[row](e, world.admissible[row])[1] for row, e in enumerate(played)
        ]
        for row, answer in enumerate(world.step(actions)):
            if answer is not None:
                transition = Transition(
                    tasks[row].id,
                    "e",
                    step,
                    played[row].states[-1],
                    actions[row],
                    answer.state,
                    answer.reward,
                    answer.done,
                )
                played[row] = played[row].with_step(transition)
    return played


def test_every_family_has_the_floor_plans_of_the_package():
    assert [len(games.floors(family)) for family in FAMILIES] == [120, 50, 57, 30, 30, 120]
    for family in FAMILIES:
        kinds_of_floor = {is_unseen_floor(floor) for floor in games.floors(family)}
        assert kinds_of_floor == {True, False}, family


@pytest.mark.parametrize("family", FAMILIES)
def test_the_expert_wins_games_of_every_family_on_several_floor_plans(adapter, world, family):
    plans = games.floors(family)[:: max(1, len(games.floors(family)) // 5)][:5]
    worlds = [make_game(family, floor, seed, 8, 8) for seed, floor in enumerate(plans)]
    assert len({game_spec.floor for game_spec in worlds}) == 5
    for episode in play_expert(adapter, world, [make_game_task(game_spec) for game_spec in worlds], 40):
        assert episode.success, (episode.task.id, [step.action for step in episode.steps])


@pytest.mark.parametrize(("receptacles", "objects", "families"), [(3, 1, FAMILIES), (60, 60, FAMILIES[4:])])
def test_the_smallest_and_the_largest_games_are_won(adapter, world, receptacles, objects, families):
    worlds = [make_game(family, games.floors(family)[1], 4, receptacles, objects) for family in families]
    assert all(len(game_spec.receptacles) > 20 or receptacles == 3 for game_spec in worlds)
    for episode in play_expert(adapter, world, [make_game_task(game_spec) for game_spec in worlds], 150):
        assert episode.success, (episode.task.id, len(episode.steps))


def test_every_plan_gives_a_game_that_can_be_solved_and_is_not_solved_yet():
    for number, (family, floor) in enumerate(PLANS):
        game_spec = make_game(family, floor, number, 8, 8)
        targets = {
            name: place for name, place in game_spec.placement.items() if kind(name) == game_spec.target
        }
        assert len(targets) >= (2 if family == "pick_two_obj_and_place" else 1)
        assert all(kind(place) != game_spec.parent for place in targets.values())
        assert all(
            place in game_spec.receptacles and kind(name) in HOLDS[kind(place)] | {game_spec.lamp}
            for name, place in game_spec.placement.items()
        )
        if game_spec.parent:
            assert (
                game_spec.parent in {kind(r) for r in game_spec.receptacles}
                and game_spec.target in HOLDS[game_spec.parent]
            )
        else:
            assert game_spec.lamp in {kind(name) for name in game_spec.placement}
        if family in TREATMENTS:
            verb, station = TREATMENTS[family]
            assert (
                game_spec.target
                in AFFORDS[{"heat": "heatable", "cool": "coolable", "clean": "cleanable"}[verb]]
            )
            assert STATIONS[verb] == station in {kind(r) for r in game_spec.receptacles}
        goal = read_goal(game_spec.instruction)
        assert (goal.family, goal.target, goal.parent, goal.lamp) == (
            family,
            game_spec.target,
            game_spec.parent,
            game_spec.lamp,
        )


def test_a_game_is_the_same_for_the_same_arguments_alone():
    first = make_game(FAMILIES[0], 1, 7, 8, 8)
    assert make_game(FAMILIES[0], 1, 7, 8, 8) == first
    assert make_game(FAMILIES[0], 1, 8, 8, 8) != first != make_game(FAMILIES[0], 2, 7, 8, 8)


def test_a_game_is_written_and_read_as_json():
    for number, (family, floor) in enumerate(PLANS[::9]):
        game_spec = make_game(family, floor, number, 8, 8)
        assert GameSpec.from_json(game_spec.to_json()) == game_spec
        assert list(GameSpec.from_json(game_spec.to_json()).placement) == list(game_spec.placement)


@pytest.mark.parametrize(
    "text", ["", "nonsense", "[]", "{}", '{"path": "a"}', '{"receptacles": []}', '{"receptacles": 3}', "null"]
)
def test_a_text_that_is_no_game_is_quoted(text):
    with pytest.raises(
        EnvironmentFailure, match="cannot be read.*Expected the JSON of a generated game.*dreamgym collect"
    ):
        GameSpec.from_json(text)


def test_an_unknown_key_of_a_game_is_refused():
    values = {**json.loads(make_game(FAMILIES[0], 1, 0, 8, 8).to_json()), "colour": "red"}
    with pytest.raises(EnvironmentFailure, match="colour"):
        GameSpec.from_json(json.dumps(values))


def test_a_plan_that_cannot_host_the_family_is_named_with_others_that_can():
    kitchens = games.floors("pick_heat_then_place_in_recep")
    bathroom = next(floor for floor in games.floors("pick_and_place_simple") if floor > 400)
    assert bathroom not in kitchens
    with pytest.raises(
        EnvironmentFailure,
        match=rf"pick_heat_then_place_in_recep on FloorPlan{bathroom} \(seed 3\).*{kitchens[0]}",
    ):
        make_game("pick_heat_then_place_in_recep", bathroom, 3, 8, 8)


def test_a_game_that_the_engine_cannot_load_is_named(world):
    game_spec = make_game(FAMILIES[0], 1, 0, 8, 8)
    broken = replace(
        game_spec,
        placement={**game_spec.placement, "unicorn 1": game_spec.receptacles[0]},
        instruction="put a unicorn in shelf",
    )
    with pytest.raises(
        EnvironmentFailure, match="game 'put a unicorn in shelf' cannot be loaded: KeyError: 'unicorn'"
    ):
        world.reset([make_game_task(game_spec), make_game_task(broken)])
    assert world.reset([make_game_task(game_spec)]) == [games.initial_state(game_spec)]


def test_names_are_sorted_by_their_numbers():
    assert sorted(["drawer 10", "drawer 2", "bed 1"], key=games.natural_order) == [
        "bed 1",
        "drawer 2",
        "drawer 10",
    ]
    assert games.natural_order("nothing") == ("nothing", 0)
