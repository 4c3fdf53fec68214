"""`dreamgym bench data`: every part is measured at each size, in processes of their own."""

import json
import os

import pytest
from typer.testing import CliRunner

from components.records import TRAIN
from flows.cli import app as cli
from flows.jobs.bench import data_size
from flows.jobs.bench.data_size import made_up_tasks, made_up_transitions


@pytest.mark.long
def test_every_part_is_measured(quiet_process, tmp_path):
    file = tmp_path / "data.json"
    done = CliRunner().invoke(cli.app, ["bench", "data", "--sizes", "200", "--json", str(file)])
    assert done.exit_code == 0, done.output
    figures = json.loads(file.read_text())["transitions"]["200"]
    parts = ("write", "read", "stream", "validate", "snapshot", "exact", "chroma")
    assert {f"{part}/{name}" for part in parts for name in ("seconds", "gb")} <= figures.keys()
    assert all(value > 0 for value in figures.values())
    assert "milliseconds_a_question" in done.output


@pytest.mark.parametrize("sizes", ["", "many", "30", "200,-20"])
def test_a_size_that_is_no_number_of_episodes_is_refused(quiet_process, sizes):
    done = CliRunner().invoke(cli.app, ["bench", "data", "--sizes", sizes])
    assert done.exit_code == 2 and "multiples of 20" in " ".join(done.output.split())


def test_made_up_transitions_are_whole_episodes_of_training_tasks():
    tasks = {task.id: task for task in made_up_tasks(400)}
    steps = list(made_up_transitions(400))
    assert len(steps) == 400 and {task.split for task in tasks.values()} == {TRAIN}
    for first in steps[::20]:
        assert first.step == 0 and first.state == tasks[first.task_id].initial_state
    for before, after in zip(steps, steps[1:], strict=False):
        assert before.done == (after.step == 0) and (before.done or before.next_state == after.state)


def end_process(*_):
    os._exit(9)


def test_a_part_whose_process_is_killed_loses_no_figure_of_another(monkeypatch):
    """The larger size has no index of Chroma, for which a process that ends stands here."""
    told = []
    parts = {"write": data_size._write, "chroma": end_process}
    monkeypatch.setattr(data_size, "PARTS", parts)
    found = data_size.bench_data([20, 40], told.append, most_in_chroma=20)
    assert [list(figures) for figures in found.values()] == [["write/seconds", "write/mb", "write/gb"]] * 2
    assert found["20"]["write/mb"] < found["40"]["write/mb"]
    assert sum("was killed" in line for line in told) == 1
    monkeypatch.setattr(data_size, "PARTS", {"write": end_process, "read": data_size._read})
    assert data_size.bench_data([20], told.append) == {"20": {}}
