"""The engine's caches change the time it takes and nothing else; official game files; worker processes that
die.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import random
import re
import signal
import threading
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import pytest

from components.config.worlds.environment_config import EnvironmentConfig
from components.environments import make_adapter
from components.environments.alfworld.adapter import is_validation_folder
from components.environments.alfworld.engine import Game, game_data
from components.environments.alfworld.games import FAMILIES, floors, make_game
from components.environments.validation_split import draw_validation_tasks
from components.errors import EnvironmentFailure
from components.trajectories.recording import collect, plan

OFFICIAL = (FAMILIES[1], FAMILIES[2], FAMILIES[5])
WORDS = ("take it", "go to moon 1", "<success>", "", "heat mug 1 with microwave 1")


def transcript(cached: bool) -> list[tuple[str, str, tuple[str, ...], bool]]:
    """Random play of four games, each loaded twice: command, text, admissible commands, won. Run it in a
    process of its own.
    """
    rng, game, lines = random.Random(5), Game(cached=cached), []
    for family in (FAMILIES[1], FAMILIES[2], FAMILIES[3], FAMILIES[5]):
        game_spec = make_game(family, floors(family)[2], 1, 4, 4)
        for steps in (9, 2):
            game.load(game_spec)
            observation, command = game.reset(), "reset"
            for _ in range(steps):
                lines.append((command, observation.text, observation.admissible, observation.won))
                keen = [
                    c
                    for c in observation.admissible
                    if c.split()[0] in ("open", "take", "move", "use", "heat", "clean", "close")
                ]
                command = (
                    rng.choice(WORDS) if rng.random() < 0.15 else rng.choice(keen or observation.admissible)
                )
                observation = game.step(command)
            lines.append((command, observation.text, observation.admissible, observation.won))
    return lines


def test_the_cached_engine_answers_as_the_stock_engine_does():
    with ProcessPoolExecutor(
        2, mp_context=multiprocessing.get_context("spawn"), max_tasks_per_child=1
    ) as pool:
        cached, stock = pool.map(transcript, (True, False))
    assert cached == stock
    verbs = {line[0].split()[0] for line in stock if line[0] and "Nothing" not in line[1]}
    assert len(stock) == 52 and {"take", "open", "go"} <= verbs, verbs


def write_official(path: Path, family: str, seed: int) -> None:
    """A generated game in the form of the official files: entities are called like `mug_bar_1`."""
    game_spec = make_game(family, floors(family)[seed], seed, 5, 4)
    data = game_data(game_spec)
    problem = data["pddl_problem"]
    for name in [*game_spec.placement, *game_spec.receptacles]:
        what, number = name.split(" ")
        what = what.removesuffix("basin")
        symbol = f"{what}_bar_{number}" + ("_bar_basin" if name.startswith(f"{what}basin") else "")
        problem = re.sub(rf"\b{name.replace(' ', '_')}\b", symbol, problem)
    grammar = data["grammar"].replace("UNKNOWN GOAL", game_spec.instruction)
    path.parent.mkdir(parents=True)
    path.write_text(json.dumps({**data, "pddl_problem": problem, "grammar": grammar}))


def folder_of(family, validation):
    """A folder's name that is kept for validation, or one that is not."""
    names = (f"{family}-Mug-None-Desk-{scene}" for scene in range(500))
    return next(name for name in names if is_validation_folder(name) == validation)


@pytest.fixture
def official(tmp_path, monkeypatch):
    """The adapter of official games: three to train on, one more kept for validation, and one unseen."""
    monkeypatch.setenv("ALFWORLD_DATA", str(tmp_path))
    train = tmp_path / "json_2.1.1" / "train"
    for seed, family in enumerate(OFFICIAL):
        write_official(
            train / folder_of(family, validation=False) / "trial_T1" / "game.tw-pddl", family, seed
        )
    write_official(
        train / folder_of(OFFICIAL[0], validation=True) / "trial_T1" / "game.tw-pddl", OFFICIAL[0], 7
    )
    write_official(
        tmp_path / "json_2.1.1" / "valid_unseen" / "x-1" / "trial_T1" / "game.tw-pddl", FAMILIES[0], 9
    )
    return make_adapter(EnvironmentConfig(games="official", workers=1))


def test_official_games_are_read_and_won(official):
    tasks = official.tasks("train", 3, 0)
    assert sorted(task.family for task in tasks) == sorted(OFFICIAL)
    assert all(task.id.startswith("alfworld/json_2.1.1/train/") and task.split == "train" for task in tasks)
    episodes = collect(official, plan([*tasks, *official.tasks("test", 1, 0)], {"expert": 1}, 0), 40)
    assert [episode.success for episode in episodes] == [True] * 4
    assert "sinkbasin 1" in next(task for task in tasks if task.family == FAMILIES[2]).initial_state


def test_official_validation_games_are_of_folders_that_no_training_task_comes_from(official):
    (game,) = official.tasks("validation", 1, 0)
    assert game.split == "validation" and "/train/" in game.id
    assert game.id not in {task.id for task in official.tasks("train", 3, 0)}
    with pytest.raises(EnvironmentFailure, match="holds 3 official games of the split train.*at least 4"):
        official.tasks("train", 4, 0)
    with pytest.raises(
        EnvironmentFailure,
        match="has 0 validation tasks beside the 1 recorded ones.*Expected 1.*evaluation.tasks",
    ):
        draw_validation_tasks(official, 1, 0, [game])


def test_too_few_official_games_are_counted(official):
    with pytest.raises(
        EnvironmentFailure, match="holds 1 official games of the split test.*at least 2.*alfworld-download"
    ):
        official.tasks("test", 2, 0)


@pytest.mark.parametrize("content", ["not json", '{"pddl_domain": "", "grammar": "", "pddl_problem": ""}'])
def test_a_damaged_official_game_is_named(official, tmp_path, content):
    (tmp_path / "json_2.1.1/valid_unseen/x-1/trial_T1/game.tw-pddl").write_text(content)
    with pytest.raises(EnvironmentFailure, match="valid_unseen/x-1/trial_T1/game.tw-pddl' cannot be loaded"):
        official.tasks("test", 1, 0)


@pytest.mark.parametrize("value", [None, "", "/nowhere"])
def test_missing_official_data_is_an_error_with_the_next_step(monkeypatch, value):
    monkeypatch.delenv("ALFWORLD_DATA", raising=False) if value is None else monkeypatch.setenv(
        "ALFWORLD_DATA", value
    )
    with pytest.raises(EnvironmentFailure, match="ALFWORLD_DATA is .*alfworld-download.*games=generated"):
        make_adapter(EnvironmentConfig(games="official")).tasks("train", 1, 0)


def test_a_game_outside_the_official_folder_is_not_opened(official, tasks, tmp_path):
    environment = official.open()
    outside = tmp_path.parent / "outside.tw-pddl"
    outside.write_text("{}")
    for path in ("../outside.tw-pddl", str(outside)):
        task = type(tasks[0])("x", "alfworld", "train", "", "", spec=json.dumps({"path": path}))
        with pytest.raises(EnvironmentFailure, match="outside.tw-pddl' lies outside"):
            environment.reset([task])
    environment.close()


def kill(environment, slot: int) -> None:
    process = environment._workers._slots[slot][0]
    os.kill(process.pid, signal.SIGKILL)
    process.join()


def test_a_worker_that_dies_fails_its_rows_and_is_replaced(tasks):
    environment = make_adapter(EnvironmentConfig(workers=2)).open()
    try:
        states = environment.reset(tasks[:4])
        kill(environment, 0)
        answers = environment.step(["look"] * 4)
        assert ["failed" in answer.info for answer in answers] == [True, True, False, False]
        assert [(a.state, a.reward, a.done) for a in answers[:2]] == [
            (state, 0.0, True) for state in states[:2]
        ]
        assert "worker process ended" in answers[0].info["failed"]
        assert not any(answer.done for answer in environment.step([None, None, "look", "look"])[2:])
        assert environment.reset(tasks[:4]) == states
        kill(environment, 1)  # between two batches nothing is lost
        assert environment.reset(tasks[:4]) == states
        assert not any("failed" in answer.info for answer in environment.step(["look"] * 4))
        process = environment._workers._slots[0][0]
        os.kill(process.pid, signal.SIGSTOP)  # it is alive when it is asked, and dies before it answers
        threading.Timer(0.5, process.kill).start()
        assert environment.reset(tasks[:4]) == states
    finally:
        environment.close()


def test_a_worker_that_has_loaded_many_games_is_replaced(tasks, monkeypatch):
    monkeypatch.setattr("components.environments.alfworld.workers._GAMES_A_WORKER", 1)
    environment = make_adapter(EnvironmentConfig(workers=1)).open()
    try:
        environment.reset(tasks[:2])
        before = environment._workers._slots[0][0].pid
        assert environment.reset(tasks[:2]) == [task.initial_state for task in tasks[:2]]
        assert environment._workers._slots[0][0].pid != before
    finally:
        environment.close()
