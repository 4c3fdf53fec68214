"""The points of a cell's curve on the held-out games."""

import json
from types import SimpleNamespace

from flows.jobs.studies.study_cells import _held_out_curve


def stage(name, interactions, tmp_path):
    """Return a stage's result with a curve, and one of the games that its policies on the way played."""
    games = tmp_path / f"{name}.json"
    games.write_text(json.dumps({"0002": {"a": True, "b": False}}))
    series = {f"{name}/interactions": interactions} if interactions else {}
    own = SimpleNamespace(name=name, details={"series": series})
    return {name: own, f"snapshots_{name}": SimpleNamespace(outputs={"games": games})}


def test_a_policy_on_the_way_has_the_costs_of_its_iteration(tmp_path):
    curve = [[10.0, 0.0, 1.0, 0.1], [20.0, 0.0, 2.0, 0.2]]
    results = stage("real_rl", [10.0, 10.0], tmp_path)
    assert _held_out_curve([results], ["real_rl"], curve) == [[20.0, 0.0, 2.0, 0.5]]


def test_learning_from_logs_has_no_curve(tmp_path):
    assert _held_out_curve([stage("logged_rl", [], tmp_path)], ["logged_rl"], []) == []
