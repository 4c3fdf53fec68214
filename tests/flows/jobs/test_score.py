"""The policy that `dreamgym evaluate` plays, with a real MLflow store and registry."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from builders import make_task

from components.config import EvaluationConfig, TrackingConfig
from components.tracking.mlflow_adapter.tracker import Tracker
from flows.jobs import score
from flows.jobs.score import find_policy
from flows.run.games.policy_games import success_rates


def _promote(tracker, directory, weights):
    directory.mkdir()
    (directory / "model.safetensors").write_text(weights)
    version = tracker.register_model(tracker.start_run("a run"), "policy", directory)
    tracker.set_alias("policy", "champion", version)
    return version


def test_champions_of_two_experiments_are_not_confused(tmp_path, monkeypatch):
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    trackers = {name: Tracker(TrackingConfig(experiment=name), tmp_path) for name in ("one", "two")}
    assert {_promote(tracker, tmp_path / name, name) for name, tracker in trackers.items()} == {"1"}
    for name in ("one", "two", "one"):
        found = find_policy(trackers[name], tmp_path, "champion")
        assert (found / "model.safetensors").read_text() == name


def test_tasks_without_a_family_have_no_family_success_rate():
    """The template's tasks have none: MLflow refuses a metric whose name ends in a slash."""
    tasks = [replace(make_task(number), family=family) for number, family in enumerate(("", "", "heat"))]
    won = {task.id: True for task in tasks}
    assert set(success_rates(won, tasks, "evaluate/cloned", EvaluationConfig())) == {
        "evaluate/cloned/success_rate",
        "evaluate/cloned/success_rate/heat",
    }
    assert set(score.score_of(Path("policy"), won, tasks, 0.95).families) == {"heat"}
