"""Tables of transitions from elsewhere, imported as episodes."""

from __future__ import annotations

from dataclasses import replace

import pandas as pd
import pytest

from components.errors import DataError
from components.records import Task, Transition
from components.trajectories.imports.dataset import build
from components.trajectories.imports.log_formats import logged_episodes
from components.trajectories.imports.logged_episode import Skipped
from components.trajectories.imports.outcomes import outcome_rule
from components.trajectories.imports.secrets import Masker
from components.trajectories.imports.step_lines import GAP, NOT_FINITE
from components.trajectories.imports.transition_tables import (
    DREAMED,
    NOT_THE_LAST,
    OTHER_STATE,
    TWO_TASKS,
    UNKNOWN_TASK,
)
from components.trajectories.store import DataLayout, write_tasks, write_transitions

TASKS = [Task(f"w/{n}", "w", "train", f"open box {n}", f"Box {n}.", family="open") for n in range(4)]


def steps_of(task, name, won=True):
    first = Transition(task.id, name, 0, task.initial_state, "pull", "Stuck.", 0.0, False, "It is locked.")
    last = Transition(task.id, name, 1, "Stuck.", "use key", "Open." if won else "No key.", float(won), won)
    return [replace(step, behaviour="near_miss", thought="A key?") for step in (first, last)]


def steps_of_all():
    return [step for n, task in enumerate(TASKS) for step in steps_of(task, f"e{n}", won=n != 1)]


@pytest.fixture
def layout(tmp_path):
    layout = DataLayout(tmp_path / "elsewhere")
    write_tasks(layout.tasks("train"), TASKS)
    write_transitions(layout.trajectories("train"), steps_of_all())
    return layout


def read(layout, outcome=""):
    entries = logged_episodes([layout.root], "transitions", outcome_rule(outcome, 1.0), Masker(["key"]).mask)
    return list(entries)


def test_rows_come_back_with_all_that_a_recorded_world_reads(layout):
    entries = logged_episodes([layout.root], "transitions", outcome_rule("", 1.0), lambda text: text)
    imported = build(entries, "recorded", held_out=0.0, longest_text=100)
    assert imported.outcomes == {"success": 3, "failure": 1} and imported.worlds == {"w": 4}
    transitions = [step for steps in imported.transitions.values() for step in steps]
    found = {replace(step, task_id="", episode_id=step.episode_id.partition("#")[0]) for step in transitions}
    assert found == {replace(step, task_id="") for step in steps_of_all()}
    assert {task.instruction for tasks in imported.tasks.values() for task in tasks} == {
        task.instruction for task in TASKS
    }


def test_rows_in_any_order_with_categories_and_whole_rewards(layout):
    before = read(layout)
    file = layout.trajectories("train")
    frame = pd.read_parquet(file).sort_values("step", ascending=False)
    frame["action"], frame["reward"] = frame["action"].astype("category"), frame["reward"].astype("int8")
    frame.to_parquet(file)
    assert sorted(read(layout), key=lambda one: one.id) == before
    assert before[0].steps[1].action == "use [masked]"


def test_a_cast_that_would_change_a_value_is_refused_by_name(layout):
    file = layout.trajectories("train")
    frame = pd.read_parquet(file)
    frame["step"] = frame["step"] + 0.5
    frame.to_parquet(file)
    with pytest.raises(DataError, match=r"step is 0.5 in row 0 .*Expected step: an integer"):
        read(layout)


@pytest.mark.parametrize(
    "change, reason",
    [
        ({"step": 2}, GAP),
        ({"state": "Loose."}, OTHER_STATE),
        ({"task_id": "w/0"}, TWO_TASKS),
        ({"reward": float("inf")}, NOT_FINITE),
    ],
)
def test_an_episode_that_breaks_a_rule_is_left_out_by_name(layout, change, reason):
    steps = steps_of_all()
    steps[-1] = replace(steps[-1], **change)
    write_transitions(layout.trajectories("train"), steps)
    *kept, skipped = read(layout)
    assert len(kept) == 3
    assert (skipped.reason, skipped.place) == (reason, "train.parquet:e3")


def test_steps_after_the_end_and_unknown_tasks_are_left_out_by_name(layout):
    steps = steps_of_all()
    steps[0] = replace(steps[0], done=True)
    steps[2:4] = [replace(step, task_id="w/9") for step in steps[2:4]]
    write_transitions(layout.trajectories("train"), steps)
    reasons = [entry.reason for entry in read(layout) if isinstance(entry, Skipped)]
    assert reasons == [NOT_THE_LAST, UNKNOWN_TASK]


def test_what_a_dream_wrote_is_left_out_and_a_first_state_is_the_tasks(layout):
    steps = steps_of_all()
    steps[0:2] = [replace(step, source="synthetic") for step in steps[0:2]]
    steps[2] = replace(steps[2], state="Box 7.")
    write_transitions(layout.trajectories("train"), steps)
    reasons = [entry.reason for entry in read(layout) if isinstance(entry, Skipped)]
    assert reasons == [DREAMED, OTHER_STATE]


def test_one_id_for_two_tasks_is_refused_by_name(layout):
    write_tasks(layout.tasks("fidelity"), [replace(TASKS[0], instruction="close it")])
    with pytest.raises(DataError, match="two tasks with the id 'w/0'.*train.parquet"):
        read(layout)
    write_tasks(layout.tasks("fidelity"), [TASKS[0]])
    assert len(read(layout)) == 4


def test_a_directory_of_something_else_says_what_to_name(tmp_path):
    with pytest.raises(DataError, match=r"tasks has no Parquet table.*--as datasets"):
        list(logged_episodes([tmp_path], "transitions", outcome_rule("", 1.0), str))


def test_another_rule_tells_the_outcome(layout):
    assert [episode.success for episode in read(layout, "last:No")] == [False, True, False, False]
    assert {episode.success for episode in read(layout, "unknown")} == {None}


def test_an_unknown_outcome_stays_unknown_and_loses_no_further_step(layout):
    steps = [
        replace(step, reward=0.0, done=False, outcome_known=False) for step in steps_of(TASKS[3], "open")
    ]
    write_transitions(layout.trajectories("train"), steps_of_all()[:6] + steps)
    entries = list(logged_episodes([layout.root], "transitions", outcome_rule("", 1.0), lambda text: text))
    asked = []
    imported = build(
        entries, "recorded", held_out=0.0, longest_text=100, decide=lambda some: asked.extend(some) or some
    )
    assert imported.outcomes == {"success": 2, "failure": 1, "unknown": 1}
    kept = [step for own in imported.transitions.values() for step in own if not step.outcome_known]
    assert [step.action for step in kept] == ["pull", "use key"]
    assert not asked, "the end that a judge would have to see is not there"
