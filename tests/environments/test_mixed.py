"""`environment.name=mixed`: several real worlds in one batch, each with what its own adapter knows."""

from __future__ import annotations

import pickle
from collections import Counter
from dataclasses import replace

import pytest

from components.config import load_config
from components.environments import adapter_modules, make_adapter
from components.environments.capabilities import capabilities
from components.environments.mixed.adapter import adapter_of, shared_capabilities
from components.environments.mixed.tasks import mixed_task, own_task, own_trajectory
from components.environments.validation_split import apart_from, draw_validation_tasks
from components.errors import ConfigError, DataError, EnvironmentFailure
from components.experience.tasks.task_feasibility import task_feasibility
from components.records import Task, Trajectory
from components.trajectories.recording import collect, plan

MIXED = {
    "environment.name": "mixed",
    "environment.worlds": "[own, webshop]",
    "environment.own.adapter": "components.environments.template:TemplateAdapter",
    "environment.webshop.catalogue": "generated",
    "environment.webshop.products": "200",
}


def environment(override=""):
    values = MIXED | dict([override.split("=")] if override else [])
    return load_config(None, [f"{key}={value}" for key, value in values.items()]).environment


@pytest.fixture(scope="module")
def adapter():
    return make_adapter(environment())


def test_tasks_come_from_the_worlds_in_turn_and_lead_back_to_them(adapter):
    tasks = adapter.tasks("train", 5, 0)
    assert [task.family for task in tasks] == ["own", "webshop", "own", "webshop", "own"]
    assert {task.environment for task in tasks} == {"mixed"}
    of_shop = make_adapter(environment().each_world[1]).tasks("train", 3, 0)
    assert [own_task(task) for task in tasks[1::2]] == of_shop[:2]
    assert all(mixed_task(own_task(task)) == task for task in tasks)
    with pytest.raises(DataError, match="names no world"):
        own_task(of_shop[0])


def test_a_world_that_gives_a_task_of_another_world_is_refused(adapter, monkeypatch):
    own = adapter.adapters["own"]
    tasks = [replace(task, environment="alfworld") for task in own.tasks("train", 2, 0)]
    monkeypatch.setattr(own, "tasks", lambda split, count, seed: tasks)
    with pytest.raises(EnvironmentFailure, match="of the environment 'alfworld'"):
        adapter.tasks("train", 4, 0)


def test_its_capabilities_are_those_that_each_world_has(adapter):
    world = adapter.open()
    shared = set(shared_capabilities(adapter, world))
    world.close()
    one, other = (set(capabilities(each, None)) for each in adapter.adapters.values())
    assert shared == one & other != one | other


def test_each_row_is_played_in_its_own_world_and_counted_in_one_budget(adapter):
    tasks = adapter.tasks("train", 4, 1)
    episodes = collect(adapter, plan(tasks, {"expert": 1}, 0), max_steps=20, rows=4)
    assert all(episode.success for episode in episodes)
    steps = sum(len(episode.steps) for episode in episodes)
    world = adapter.open(budget=3)
    try:
        assert world.reset(tasks) == [task.initial_state for task in tasks]
        assert [bool(row) for row in world.admissible] == [True] * 4
        answers = world.step(["open box 1", "search[shoe]", None, None])
        assert answers[0].state.startswith("Box 1") and "shoe" in answers[1].state
        assert answers[2:] == [None, None] and world.interactions == 2
        with pytest.raises(EnvironmentFailure, match="budget is 3"):
            world.step(["open box 1"] * 4)
        assert world.interactions == 2 < steps
    finally:
        world.close()


def test_a_world_is_asked_about_its_own_episodes_alone(adapter):
    tasks = adapter.tasks("train", 2, 1)
    for task, kind in zip(tasks, ("own", "webshop"), strict=True):
        own = make_adapter(environment()).adapters[kind].facts(own_trajectory(Trajectory(task)))
        facts = adapter.facts(Trajectory(task))
        assert facts == own and {fact.world for fact in facts} == {kind}
        assert pickle.loads(pickle.dumps(facts)) == facts
        assert not any(adapter.contradicts(fact, facts) for fact in facts)
    assert adapter.refused("Nothing happens.") and not adapter.refused("Box 1: empty.")
    assert adapter.feasible(tasks[0]) == ""


def test_a_draw_of_validation_tasks_has_an_equal_share_of_each_world(adapter):
    recorded = [*adapter.tasks("train", 30, 0), *adapter.tasks("test", 10, 0)]
    drawn = draw_validation_tasks(adapter, 9, 7, recorded)
    assert Counter(task.family for task in drawn) == {"own": 5, "webshop": 4}
    assert not {task.id for task in drawn} & {task.id for task in recorded}


def test_tasks_without_a_spec_are_told_apart_by_their_id():
    tasks = [mixed_task(Task(f"own/{n}", "own", "test", f"take {n}", "Boxes.")) for n in range(4)]
    assert apart_from(tasks[2:], tasks[:2]) == tasks[2:]
    assert own_task(tasks[0]).spec == "{}"


def test_a_world_without_knowledge_of_its_variations_learns_it_from_its_own_tasks(adapter):
    tasks = adapter.tasks("train", 40, 0)
    feasible = task_feasibility(adapter, tasks)
    first, second = (task for task in tasks[:4] if task.family == "own")
    varied = replace(first, instruction=second.instruction, parent=first.id)
    assert adapter.feasible(varied) != "" and feasible(varied) == ""
    assert feasible(replace(first, instruction="i want a vegan body lotion", parent=first.id)) != ""
    assert adapter_of(adapter, tasks[1]).name == "webshop"


def test_its_identity_is_that_of_all_its_worlds():
    one, other = environment(), environment("environment.webshop.products=300")
    assert one.decisive() != other.decisive()
    assert {"components.environments.webshop.adapter", "components.environments.template"} <= set(
        adapter_modules(one)
    )
    assert [world.name for world in one.each_world] == ["own", "webshop"]
    assert {"worlds", "own", "webshop"} <= set(one.model_dump()) and "games" not in one.model_dump()
    assert "worlds" not in load_config(None, []).environment.model_dump()
    assert load_config(None, []).environment.each_world == [load_config(None, []).environment]


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("environment.worlds=[own]", "expected two or more different ones"),
        ("environment.worlds=[own, own]", "expected two or more different ones"),
        ("environment.worlds=[own, recorded]", "recorded"),
        ("environment.worlds=[own, webshop, openenv]", "openenv needs environment.openenv.url"),
        ("environment.receptacles=4", "receptacles has no effect with name: mixed"),
        ("environment.name=webshop", "worlds has no effect with name: webshop"),
    ],
)
def test_worlds_that_cannot_be_mixed_are_refused(override, message):
    with pytest.raises(ConfigError, match=message):
        environment(override)
