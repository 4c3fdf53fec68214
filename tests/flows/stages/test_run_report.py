"""The report's data: a head that says what made the run, and commands that work in any directory."""

from __future__ import annotations

import shlex
from pathlib import Path

from typer.main import get_command

from components.tracking.manifest import Manifest
from components.tracking.run_environment import Environment, Git
from flows.cli import app as cli
from flows.stages.report import next_commands, report_head

RUN = "20260131-142530-9f3a"


def make_manifest(**changes):
    values = {
        "run_id": RUN,
        "environment": Environment(git=Git(commit="ab" * 20, dirty=True)),
        "seconds": 125.0,
    }
    values |= {
        "config": {"environment": {"name": "alfworld", "games": "generated"}},
        "created": "2026-01-31T14:25:30+00:00",
    }
    return Manifest(**values | changes)


def test_the_head_says_what_made_the_run():
    manifest = make_manifest(config_file="configs/quick.yaml", overrides=["seed=3"], seeds={"run": 3})
    manifest.data.dvc_in, manifest.data.dvc_out = "a" * 32 + ".dir", "b" * 32 + ".dir"
    head = dict(report_head(manifest))
    assert (
        head["date"] == "31 January 2026, 14:25 UTC" and head["environment"] == "alfworld (generated games)"
    )
    assert (
        head["config"] == "configs/quick.yaml" and head["overrides"] == "seed=3" and head["seed"] == "run 3"
    )
    assert head["commit"] == "ab" * 20 + ", with changes (git.diff)" and head["wall time"] == "2 min 05 s"
    assert head["data (DVC)"] == f"{'a' * 32}.dir before, {'b' * 32}.dir after the run"


def test_the_next_commands_are_complete_and_name_existing_things(tmp_path):
    root = tmp_path / "a clone"
    (root / "runs" / "20260130-000000-0000").mkdir(parents=True)
    (root / "runs" / RUN).mkdir()
    manifest = make_manifest(seeds={"run": 3})
    manifest.data.experiment_commit = "c" * 40
    commands = [shlex.split(line, comments=True) for line in next_commands(manifest, root, root / "model")]
    assert ["compare", "20260130-000000-0000", RUN] in [command[1:4] for command in commands]
    verbs = get_command(cli.app).commands
    for program, *arguments in commands:
        assert str(root) in arguments
        if program == "git":
            continue
        assert Path(program).is_absolute()
        verb = verbs[arguments[0]]
        verb.make_context(arguments[0], arguments[1:])  # every option is one that the verb has
    assert f"{root}/runs/{RUN}/config.json" in next(
        command for command in commands if command[1] == "retrain"
    )


def test_a_first_run_has_no_compare_command(tmp_path):
    assert not any(
        " compare " in line for line in next_commands(make_manifest(), tmp_path, tmp_path / "model")
    )
