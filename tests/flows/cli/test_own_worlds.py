"""Environments of the user's own, through the commands: the template is checked and collected."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace

import pytest
from builders import make_task
from small_job import ROOT, command_of, last_of_each
from typer.testing import CliRunner

from components.config import DataConfig, load_config
from components.environments import make_adapter
from components.environments.template import BoxWorld, TemplateAdapter
from components.environments.vectorized import RowsEnvironment
from components.errors import EnvironmentFailure
from components.tracking.stage_store.stage_keys import key_of
from components.trajectories.store import DataLayout, read_tasks, read_transitions, trajectories
from components.trajectories.validation import validate
from flows.checks import doctor
from flows.cli import app as cli
from flows.jobs.collect import choose_tasks
from flows.run.pipeline_run import Run

OWN = ["environment.name=own", "environment.own.adapter=components.environments.template:TemplateAdapter"]


def test_the_template_is_collected_and_its_data_is_valid(tmp_path):
    """In a new repository, with an environment that only the config names."""
    (tmp_path / "my_world.py").write_text(
        (ROOT / "components" / "environments" / "template.py")
        .read_text()
        .replace("take the {v[", "take my {v[")
    )
    for command in (
        ["init", "-q"],
        ["-c", "user.name=t", "-c", "user.email=t@example.org", "commit", "-q", "--allow-empty", "-m", "new"],
    ):
        subprocess.run(["git", *command], cwd=tmp_path, check=True)
    subprocess.run([sys.executable, "-m", "dvc", "init", "-q"], cwd=tmp_path, check=True)
    few = [
        "data.train_tasks=6",
        "data.fidelity_tasks=2",
        "data.fidelity_worlds=0",
        "environment.name=own",
        "environment.own.adapter=my_world:TemplateAdapter",
    ]
    environment = {
        **os.environ,
        "PYTHONPATH": str(ROOT),
        "COLUMNS": "200",
        "PREFECT_HOME": str(tmp_path / ".dreamgym" / "prefect"),
    }
    done = subprocess.run(
        command_of("collect", *few),
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        timeout=500,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "train: 6 tasks, 30 episodes" in done.stdout
    layout = DataLayout.of(tmp_path, "own")
    tasks = {name: read_tasks(layout.tasks(name)) for name in ("train", "fidelity", "test")}
    episodes = trajectories(tasks["train"], read_transitions(layout.trajectories("train")))
    assert all(e.success for e in episodes if e.steps[0].behaviour == "expert") and not all(
        e.success for e in episodes
    )
    own = [task.instruction.startswith("take my ") for split in tasks.values() for task in split]
    assert own and all(own), "the user's own module, not the shipped one"
    report = validate(layout.trajectories("train"), tasks, DataConfig(), tmp_path / "checked")
    assert report.rows == report.valid_rows > 60


def test_a_stage_runs_again_when_the_users_module_changes(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    (tmp_path / "constraints.txt").touch()
    keys = []
    for text in ("class Mine: ...", "class Mine: size = 2", "class Mine: ..."):
        (tmp_path / "a_world_of_mine.py").write_text(text)
        run = Run(
            load_config(None, ["environment.name=own", "environment.own.adapter=a_world_of_mine:Mine"]),
            tmp_path,
        )
        keys.append(
            [
                key_of("clone", run.key_parts({}, run.slice(section), "flows.jobs.collect"))
                for section in ("environment", "cloning")
            ]
        )
    assert keys[0] == keys[2] and keys[0][0] != keys[1][0] and keys[0][1] == keys[1][1], (
        "the world counts where it is read"
    )


def check(*arguments):
    return CliRunner().invoke(cli.app, ["check-environment", *arguments])


def test_the_template_keeps_the_whole_contract(quiet_process):
    done = check(*OWN)
    assert done.exit_code == 0 and "The adapter keeps the whole contract." in done.output, done.output
    assert done.output.count("\nok ") >= 12 and "wrong" not in done.output
    assert "Set experience_model.premise=false" in done.output and "Set data.fidelity_worlds=0" in done.output
    assert "ok Validation tasks are there, differ" in " ".join(done.output.split())


def test_the_template_has_as_many_tasks_as_a_collection_asks_for():
    config = load_config(None, [*OWN, "data.fidelity_worlds=0"])
    adapter, data = make_adapter(config.environment), config.data
    assert len({task.id for task in adapter.tasks("train", data.train_tasks + data.fidelity_tasks, 0)}) == 340
    with pytest.raises(
        EnvironmentFailure,
        match="This world has 800 tasks of train. Expected at least 801. Lower data.train_tasks",
    ):
        adapter.tasks("train", 801, 0)
    assert len(choose_tasks.fn(config)["test"]) == 200


def test_without_an_expert_the_doctor_plays_who_records_the_data():
    """With `data.expert` 0 an environment without an expert passes."""
    options = ["environment.name=gymnasium", "environment.gymnasium.factory=text_worlds:Counting"]
    options += ["data.expert=0", "data.noisy=0", "data.near_miss=0"]
    rung = doctor.run_check(doctor.check_games, load_config(None, options), ROOT)
    assert rung.state == "ok" and "random play took" in rung.found and "data.expert=0" in rung.found
    gone = load_config(
        None,
        [
            "environment.name=openenv",
            "environment.openenv.url=http://127.0.0.1:9",
            "environment.openenv.tasks=seeds",
        ],
    )
    rung = doctor.run_check(doctor.check_games, gone, ROOT)
    assert rung.state == "wrong" and "refused" in rung.found and "environment.openenv.url" in rung.next_step
    assert "[openenv]" not in doctor.install_command(gone)
    assert "[webshop]" in doctor.install_command(load_config(None, ["environment.name=webshop"]))


def test_a_world_without_an_expert_gets_a_hint_what_to_set(quiet_process):
    done = check("environment.name=gymnasium", "environment.gymnasium.factory=text_worlds:Counting")
    assert done.exit_code == 0, done.output
    assert (
        "doubt The expert wins: It won none of 0." in done.output
        and "data.expert=0 data.noisy=0 data.near_miss=0" in done.output
    )


def test_a_world_whose_data_has_no_expert_needs_none(quiet_process):
    world = ["environment.name=gymnasium", "environment.gymnasium.factory=text_worlds:Counting"]
    done = check(*world, "data.expert=0", "data.noisy=0", "data.near_miss=0")
    told = " ".join(done.output.split())
    assert done.exit_code == 0 and "none is recorded (data.expert=0)" in told
    assert "doubt The expert" not in told and "doubt Behaviours" not in told


def breaking(**changes):
    return type("Broken", (TemplateAdapter,), changes)


WRONG = {
    "the same tasks in both splits": (
        {"tasks": lambda self, split, count, seed: _renamed(self, count, seed, split)},
        "both in train and in test",
    ),
    "tasks that are drawn anew each time": (
        {"tasks": lambda self, split, count, seed: _drawn(self, split, count)},
        "gives others when asked again",
    ),
    "validation tasks that are test tasks": (
        {"tasks": lambda self, split, count, seed: _tested(self, count, seed, split)},
        "validation tasks are training or test tasks",
    ),
    "an objection to what is real": (
        {"contradiction": lambda self, history, state: "no"},
        "A real state is objected to: no",
    ),
    "no reason": ({"reason": lambda self, *_: ""}, "reason gives no words for"),
    "no facts": ({"facts": lambda self, trajectory: set()}, "facts finds nothing in"),
    "everything is feasible": ({"feasible": lambda self, task: ""}, "'be happy' is called feasible"),
    "progress without success": ({"progress": lambda self, trajectory: 1.0}, "1.0 in own/"),
    "a bug": ({"reason": lambda self, *_: 1 / 0}, "ZeroDivisionError: division by zero (line"),
    "another name": ({"name": "boxes"}, "has environment 'boxes' and split 'train'"),
    "a world that goes on for ever": (
        {"open": lambda self, budget=None, **_: _endless()},
        "A fourth step was taken with a budget of 3",
    ),
    "one task that begins otherwise": (
        {"open": lambda self, budget=None, **_: _moved(self, budget)},
        "did not begin as recorded",
    ),
    "what was seen reveals": (
        {"revealing": lambda self, *_: True},
        "is called revealing right after it was seen",
    ),
    "any premise is believed": (
        {"objection": lambda self, task, premise: ""},
        "one made up is not objected to",
    ),
    "a premise that it objects to": (
        {"premise": lambda self, trajectory: "coin box 1"},
        "'coin box 1' is objected to",
    ),
}


def _renamed(adapter, count, seed, split):
    return [replace(task, split=split) for task in TemplateAdapter.tasks(adapter, "train", count, seed)]


def _tested(adapter, count, seed, split):
    own = "test" if split == "validation" else split
    return [replace(task, split=split) for task in TemplateAdapter.tasks(adapter, own, count, 0)]


def _drawn(adapter, split, count, times=iter(range(1000))):
    return TemplateAdapter.tasks(adapter, split, count, next(times))


def _moved(adapter, budget):
    first = adapter.tasks("train", 4, 5)[0]

    class Moved(BoxWorld):
        def begin(self, task):
            return f"{super().begin(task)}{' Dust.' * (task.id == first.id)}"

    return RowsEnvironment(Moved, budget)


def _endless():
    return TemplateAdapter.open(make_adapter(load_config(None, OWN).environment))


@pytest.mark.parametrize("name", WRONG)
def test_a_broken_part_of_the_contract_is_reported(quiet_process, monkeypatch, name):
    changes, words = WRONG[name]
    monkeypatch.setattr("components.environments.template.TemplateAdapter", breaking(**changes))
    done = check(*OWN)
    assert done.exit_code == 1 and words in " ".join(done.output.split()), done.output
    assert (
        "wrong " in done.output
        and "Correct the first `wrong` line" in done.output
        and "Traceback" not in done.output
    )


def test_an_error_of_the_world_on_a_malformed_action_is_reported(quiet_process, monkeypatch):
    def act(self, action):
        raise RuntimeError("no such command")

    monkeypatch.setattr("components.environments.template.BoxWorld.act", act)
    done = check(*OWN)
    assert done.exit_code == 1 and "the world failed: RuntimeError: no such command" in " ".join(
        done.output.split()
    )


def test_a_world_is_asked_for_no_more_tasks_than_the_config_plays(quiet_process, monkeypatch):
    whole = TemplateAdapter.tasks

    def tasks(self, split, count, seed):
        if split == "test" and count > 8:
            raise EnvironmentFailure("There are 8 tasks.")
        return whole(self, split, count, seed)

    monkeypatch.setattr(TemplateAdapter, "tasks", tasks)
    done = check(*OWN, "evaluation.tasks=8")
    assert done.exit_code == 0 and "8 of test" in done.output, done.output


def test_a_world_with_few_tasks_lists_what_an_evaluation_plays(monkeypatch):
    few = [
        "data.train_tasks=4",
        "data.fidelity_tasks=1",
        "data.fidelity_worlds=0",
        "evaluation.tasks=20",
        *OWN,
    ]

    def tasks(self, split, count, seed):
        if split == "test" and count > 50:
            raise EnvironmentFailure("There are 50 tasks.")
        return [
            make_task(number, id=f"own/{split}-{number}", environment="own", split=split)
            for number in range(count)
        ]

    monkeypatch.setattr(TemplateAdapter, "tasks", tasks)
    assert len(choose_tasks.fn(load_config(None, few))["test"]) == 20
    with pytest.raises(Exception, match="There are 50 tasks"):
        choose_tasks.fn(load_config(None, last_of_each([*few, "evaluation.tasks=60"])))
