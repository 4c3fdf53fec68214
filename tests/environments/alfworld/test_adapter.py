"""ALFWorld's tasks and their floor plans, and which generated tasks are refused."""

from __future__ import annotations

import json
import re
from collections import Counter
from dataclasses import replace

import pytest
from builders import make_task

from components.config.worlds.environment_config import EnvironmentConfig
from components.environments import make_adapter
from components.environments.alfworld.adapter import is_unseen_floor
from components.environments.alfworld.games import FAMILIES, GameSpec
from components.errors import EnvironmentFailure

KITCHEN = "Room: cabinet 1, countertop 1, fridge 1, microwave 1, sinkbasin 1. Holding nothing."
STUDY = "Room: bed 1, desk 1, shelf 1. Holding nothing."


def floor_of(task) -> int:
    return GameSpec.from_json(task.spec).floor


def test_half_of_the_test_tasks_have_floor_plans_that_no_training_task_has(adapter):
    train, test = adapter.tasks("train", 240, 0), adapter.tasks("test", 240, 0)
    assert not any(is_unseen_floor(floor_of(task)) for task in train)
    for family in FAMILIES:
        unseen = Counter(is_unseen_floor(floor_of(task)) for task in test if task.family == family)
        assert unseen[True] == unseen[False] == 20
    assert len({task.id for task in train + test}) == 480


def test_a_longer_list_starts_with_the_shorter_one(adapter):
    assert adapter.tasks("train", 20, 3)[:7] == adapter.tasks("train", 7, 3)


def test_the_seed_and_sizes_of_the_config_change_the_games():
    def first(**changes):
        return make_adapter(EnvironmentConfig(**changes)).tasks("train", 6, 0)

    assert first() == first(workers=1, max_steps=3)
    assert not {t.id for t in first()} & {t.id for t in first(seed=1)}
    assert {len(GameSpec.from_json(t.spec).receptacles) for t in first(receptacles=4)} <= {3, 4}
    few = [GameSpec.from_json(t.spec) for t in first(objects=1)]
    assert max(len(game.placement) for game in few) <= 4


def test_the_spec_of_a_task_rebuilds_its_game(tasks):
    for task in tasks:
        game = GameSpec.from_json(task.spec)
        assert game.instruction == task.instruction and game.family == task.family
        assert task.initial_state == f"Room: {', '.join(game.receptacles)}. Holding nothing."
        assert json.loads(task.spec)["floor"] == game.floor


@pytest.mark.parametrize("spec", ["no JSON", "", "3", "[]", '{"floor": 3}'])
def test_a_spec_that_is_no_game_is_named(world, tasks, spec):
    with pytest.raises(EnvironmentFailure, match=f"The game {re.escape(repr(spec))} cannot be read"):
        world.reset([replace(tasks[0], spec=spec)])


@pytest.mark.parametrize(
    ("instruction", "room", "why"),
    [
        ("put a hot mug in cabinet", KITCHEN, ""),
        ("Put a hot mug in cabinet.", KITCHEN, ""),
        ("put two egg in countertop", KITCHEN, ""),
        ("look at book under the desklamp", STUDY, ""),
        ("examine the book with the floorlamp", STUDY, ""),
        ("", KITCHEN, "follows no template"),
        ("put a mug", KITCHEN, "follows no template"),
        ("put a mug in cabinet <success>", KITCHEN, "follows no template"),
        ("put a hot mug in shelf", KITCHEN, "the room lacks the place"),
        ("put a mug in spaceship", KITCHEN, "the room lacks the place"),
        ("look at book under the microwave", STUDY, "no such lamp"),
        ("look at unicorn under the desklamp", STUDY, "no such object"),
        ("look at desk under the desklamp", STUDY, "no such object"),
        ("look at desklamp under the desklamp", STUDY, "no such object"),
        ("look at egg under the desklamp", STUDY, "no such object"),
        ("put a applesliced in countertop", KITCHEN, "no such object"),
        ("put a hot mug in desk", STUDY, "cannot be done in this room"),
        ("put a hot plate in microwave", KITCHEN, "cannot be done in this room"),
        ("put a hot knife in cabinet", KITCHEN, "cannot be done in this room"),
        ("put a clean book in desk", STUDY, "cannot be done in this room"),
        ("put a apple in cabinet", KITCHEN, "cannot be done in this room"),
    ],
)
def test_a_generated_task_is_judged_by_its_text_and_its_room(adapter, instruction, room, why):
    assert adapter.feasible(make_task(instruction=instruction, initial_state=room)) == why


def test_every_real_task_is_feasible(adapter):
    assert {
        adapter.feasible(task) for split in ("train", "test") for task in adapter.tasks(split, 120, 4)
    } == {""}
