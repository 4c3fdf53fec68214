"""The validation games of a run, for each environment, and the ledger of the test split."""

import json
from datetime import date

import pytest

from components.config import load_config
from components.environments import make_adapter
from components.environments.validation_split import opening
from components.errors import EnvironmentFailure
from components.tracking.held_out_ledger import LEDGER, held_out_reads, note_held_out_read
from components.trajectories.store import DataLayout, write_tasks
from flows.run.games.validation_games import draw_of, validation_file, validation_games, with_validation_draw
from flows.run.pipeline_run import Run

FEW = ["evaluation.tasks=12", "environment.workers=1"]


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    """A directory with recorded tasks of three splits, and no trajectories."""
    place = tmp_path_factory.mktemp("root")
    (place / "constraints.txt").write_text("")
    adapter, layout = make_adapter(load_config(None, FEW).environment), DataLayout.of(place, "alfworld")
    train = adapter.tasks("train", 40, 0)
    for name, tasks in {
        "train": train[:30],
        "fidelity": train[30:],
        "test": adapter.tasks("test", 40, 0),
    }.items():
        write_tasks(layout.tasks(name), tasks)
    return place


def games(root, number=0, *overrides):
    return validation_games(Run(load_config(None, [*FEW, *overrides]), root), number)


def test_every_run_of_a_draw_plays_the_same_games_whatever_its_seed(root):
    assert games(root) == games(root, 0, "seed=7") == games(root, 0, "rl.dream.iterations=4")
    assert {task.split for task in games(root)} == {"validation"}


def test_batches_and_draws_share_no_game(root):
    batches = [games(root), games(root, 1), games(root, 2), games(root, 0, "promotion.draw=202648")]
    assert len({task.id for batch in batches for task in batch}) == 4 * 12


def test_no_validation_game_shares_id_or_opening_with_a_recorded_task_or_the_room_with_a_training_task(root):
    """Not even the room: a generated task keeps the room of its parent."""
    from components.trajectories.store import read_tasks

    layout = DataLayout.of(root, "alfworld")
    recorded = [task for name in ("train", "fidelity", "test") for task in read_tasks(layout.tasks(name))]
    drawn = [*games(root), *games(root, 1), *games(root, 2)]
    for key in (lambda task: task.id, opening):
        assert not set(map(key, drawn)) & set(map(key, recorded))
    rooms = {task.initial_state for task in read_tasks(layout.tasks("train"))}
    assert not {task.initial_state for task in drawn} & rooms


def test_a_batch_is_drawn_once_and_kept(root, monkeypatch):
    run = Run(load_config(None, FEW), root)
    path = validation_file(run)
    monkeypatch.setattr("flows.run.games.validation_games.draw_validation_tasks", None)
    assert validation_file(run) == path and path.is_file()


def test_too_few_tasks_are_reported_before_any_stage(root, monkeypatch):
    def refuse(*_):
        raise EnvironmentFailure("This world has 3 tasks of test.")

    monkeypatch.setattr("components.environments.alfworld.adapter.AlfworldAdapter.tasks", refuse)
    words = "0 validation tasks beside the 80 recorded.*3 tasks.*Expected 12 .*Lower evaluation.tasks"
    with pytest.raises(EnvironmentFailure, match=words):
        games(root, 0, "promotion.draw=5")


def test_the_draw_follows_the_calendar_unless_it_is_named():
    day = date(2026, 11, 26)
    assert [draw_of(refresh, day) for refresh in ("never", "week", "month")] == [0, 202648, 202611]
    weekly = with_validation_draw(load_config(None, ["promotion.refresh=week"]), day)
    assert weekly.promotion.draw == 202648
    assert with_validation_draw(weekly, date(2027, 6, 1)) == weekly, (
        "a run that is made again plays the games of its record"
    )
    assert with_validation_draw(load_config(), day).promotion.draw == 0


def test_the_ledger_counts_the_readings_of_a_list_of_test_games(root, tmp_path):
    layout = DataLayout.of(root, "alfworld")
    tasks, other = layout.tasks("test"), layout.tasks("train")
    counts = [note_held_out_read(tmp_path, tasks, "evaluate", f"run-{n}", 12) for n in range(2)]
    assert counts == [1, 2] and note_held_out_read(tmp_path, other, "study", "run-9", 12) == 1
    with (tmp_path / LEDGER).open("a") as file:
        file.write(json.dumps({"time": ""})[:-4])
    assert [entry["reader"] for entry in held_out_reads(tmp_path)] == ["run-0", "run-1", "run-9"]
