"""Real steps of games that evaluate policies, told from those of checks."""

from __future__ import annotations

from pathlib import Path

from components.tracking.stage_store.stage_result import StageResult
from flows.jobs.studies.study_cells import _evaluation_interactions


def result(name, key, steps):
    return StageResult(name, key, Path(), {}, {}, {}, 1.0, details={"costs": {"check_interactions": steps}})


def test_games_that_evaluate_are_counted_once_a_result_and_checks_are_not():
    first = {
        "snapshots_synthetic_rl": result("snapshots_synthetic_rl", "a", 5),
        "check_dreamed": result("check_dreamed", "c", 100),
    }
    last = {
        "snapshots_synthetic_rl": result("snapshots_synthetic_rl", "b", 7),
        "evaluate_policy": result("evaluate_policy", "d", 11),
        "clone": StageResult("clone", "e", Path(), {}, {}, {}, 1.0),
    }
    assert _evaluation_interactions([first, last], last) == 5 + 7 + 11
