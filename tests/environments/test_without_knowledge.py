"""`environment.knowledge=false`: the same tasks and episodes, and none of the adapter's knowledge."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

import pytest
from builders import make_episode, make_task

from components.config import load_config
from components.environments import make_adapter
from components.environments.capabilities import ValidationSplit, capabilities
from components.errors import ConfigError
from components.records import Trajectory
from components.trajectories.recording import BEHAVIOURS, collect, plan
from components.trajectories.store import write_tasks, write_transitions
from flows.run.run_data import stream_training_episodes

OWN = ["environment.name=own", "environment.own.adapter=components.environments.template:TemplateAdapter"]
OFF = [
    *("environment.knowledge=false", "experience_model.premise=false", "experience_model.reasoning=false"),
]


def adapters(*overrides):
    """The adapter with and without its knowledge."""
    return [make_adapter(load_config(None, [*overrides, *more]).environment) for more in ([], OFF)]


def test_tasks_and_recorded_episodes_are_the_same():
    known, plain = adapters(*OWN)
    assert plain.tasks("test", 5, 1) == known.tasks("test", 5, 1)
    tasks = plain.tasks("train", 4, 0)
    counts = {"expert": 1, "near_miss": 1}
    episodes = [collect(one, plan(tasks, counts, seed=1), max_steps=20, rows=8) for one in (known, plain)]
    actions = [[[step.action for step in episode.steps] for episode in played] for played in episodes]
    assert actions[0] == actions[1]
    assert isinstance(plain, ValidationSplit) and plain.splits == known.splits


def test_nothing_that_alfworlds_adapter_knows_is_left(tasks):
    known, plain = adapters()
    thoughts = set()
    for name in BEHAVIOURS:
        history = Trajectory(tasks[0])
        thought, action = known.behaviour(name, tasks[0], 3)(history, ("look", "go to desk 1"))
        thoughts.add(thought)
        assert plain.behaviour(name, tasks[0], 3)(history, ("look", "go to desk 1")) == ("", action)
    assert thoughts != {""}, "its expert writes what it thinks"
    assert {"Reasoning", "Facts", "Coherence", "HiddenState", "Embodiment"} <= set(capabilities(known, None))
    assert set(capabilities(plain, None)) <= {"ValidationSplit"}
    moved = make_episode(make_task(), ("look", "At desk 1: mug 1. Holding nothing."))
    assert known.contradiction(moved, "At desk 1: empty. Holding nothing.") != ""
    assert plain.contradiction(moved, "At desk 1: empty. Holding nothing.") == ""
    assert plain.describe_world() == plain.describe_actions() == ""
    assert "knowledge is off" in plain.notice


@pytest.mark.parametrize("left_on", OFF[1:])
def test_what_needs_the_knowledge_is_refused(left_on):
    overrides = [*(option for option in OFF if option != left_on), left_on.replace("false", "true")]
    with pytest.raises(ConfigError, match=f"set {left_on}"):
        load_config(None, overrides)


def test_a_record_with_knowledge_is_as_it_was():
    on, off = (load_config(None, more).environment for more in ([], OFF))
    assert "knowledge" not in on.model_dump() and off.model_dump()["knowledge"] is False
    assert off.decisive() != on.decisive()


class _Run:
    """What `stream_training_episodes` asks of a run: its config and its tasks."""

    def __init__(self, tasks, overrides):
        self.config = load_config(None, overrides)
        self.logs = SimpleNamespace(tasks=lambda _: tasks)


@pytest.mark.parametrize(
    ("overrides", "kept"),
    [(OFF, {"policy"}), ([], {"policy", "expert"}), ([*OFF, "cloning.thoughts=false"], set())],
)
def test_recorded_thoughts_of_an_adapter_are_not_cloned(tmp_path, overrides, kept):
    """Data that was recorded with the knowledge has the adapter's thoughts; those of a policy stay."""
    task = make_task()
    steps = [
        replace(step, behaviour=name, thought="I know it.", episode_id=name)
        for name in ("expert", "policy")
        for step in make_episode(task, ("look", "Looked around.")).steps
    ]
    write_tasks(tmp_path / "tasks.parquet", [task])
    write_transitions(tmp_path / "train.parquet", steps)
    run = _Run(tmp_path / "tasks.parquet", overrides)
    episodes = list(stream_training_episodes(run, tmp_path / "train.parquet"))
    assert len(episodes) == 2
    assert {one.steps[0].behaviour for one in episodes if one.steps[0].thought} == kept
