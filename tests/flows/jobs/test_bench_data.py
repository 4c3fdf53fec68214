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
def test_every_part_is_measured_at_each_size(quiet_process, tmp_path):
    file = tmp_path / "data.json"
    command = ["bench", "data", "--sizes", "200,400", "--chroma-up-to", "200", "--json", str(file)]
    done = CliRunner().invoke(cli.app, command)
    assert done.exit_code == 0, done.output
    found = json.loads(file.read_text())["transitions"]
    parts = ("write", "read", "stream", "validate", "snapshot", "exact", "chroma")
    for size, figures in found.items():
        own = parts if size == "200" else parts[:-1]
        names = {f"{part}/{name}" for part in own for name in ("seconds", "gb")}
        assert names <= figures.keys() and (size == "200") == ("chroma/gb" in figures)
        assert all(value > 0 for value in figures.values())
    assert found["200"]["write/mb"] < found["400"]["write/mb"]
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
    told = []
    monkeypatch.setattr(data_size, "PARTS", {"write": data_size._write, "read": end_process})
    found = data_size.bench_data([20, 40], told.append)
    assert [list(figures) for figures in found.values()] == [["write/seconds", "write/mb", "write/gb"]] * 2
    assert sum("was killed" in line for line in told) == 2
    monkeypatch.setattr(data_size, "PARTS", {"write": end_process, "read": data_size._read})
    assert data_size.bench_data([20], told.append) == {"20": {}}
