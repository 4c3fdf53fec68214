"""Rollback to an earlier champion, in a real MLflow on SQLite."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from components.config import TrackingConfig
from components.errors import TrackingError
from components.tracking.mlflow_adapter.tracker import Tracker
from flows.past_runs.rollback import plan_rollback, roll_back
from flows.stages.promote import PROMOTED_AT


@pytest.fixture
def tracker(tmp_path):
    (tmp_path / "mlflow").mkdir()
    return Tracker(TrackingConfig(), tmp_path)


def register(tracker, tmp_path, *, promoted):
    """Register a new version; with `promoted` it becomes the champion at that time."""
    model = tmp_path / f"model-{promoted}"
    model.mkdir()
    (model / "weights").write_text(str(promoted))
    version = tracker.register_model(
        tracker.start_run("r"), "policy", model, {"dreamgym.run_id": f"run-{promoted}"}
    )
    if promoted:
        tracker.set_alias("policy", "champion", version)
        tracker.tag_version("policy", version, {PROMOTED_AT: promoted})
    return version


def now():
    """A time after every rollback so far."""
    return datetime.now(UTC).isoformat(timespec="microseconds")


def test_rollback_returns_to_the_champion_before_and_then_to_the_one_before_that(tracker, tmp_path):
    first, second, _, third = (
        register(tracker, tmp_path, promoted=at) for at in ("2026-01-01", "2026-01-02", "", "2026-01-03")
    )
    move = plan_rollback(tracker)
    assert (move.before, move.after, move.run_id) == (third, second, "run-2026-01-02")
    assert tracker.alias("policy", "champion") == third, "a plan changes nothing"
    roll_back(tracker, move)
    assert tracker.alias("policy", "champion") == second
    roll_back(tracker, plan_rollback(tracker))
    assert tracker.alias("policy", "champion") == first
    with pytest.raises(TrackingError, match="first champion.*nothing to go back to"):
        plan_rollback(tracker)


def test_a_withdrawn_version_is_skipped_but_can_be_chosen(tracker, tmp_path):
    first, second = (register(tracker, tmp_path, promoted=at) for at in ("2026-01-01", "2026-01-02"))
    roll_back(tracker, plan_rollback(tracker))
    third = register(tracker, tmp_path, promoted=now())
    assert plan_rollback(tracker).after == first
    assert plan_rollback(tracker, second).after == second
    assert plan_rollback(tracker, second).before == third


def test_a_champion_by_rollback_counts_as_the_one_before_the_next(tracker, tmp_path):
    """1, 2, 3, back to 1, then 4: before 4 the champion was 1, not the withdrawn 2."""
    first, second, third = (register(tracker, tmp_path, promoted=f"2026-01-0{day}") for day in (1, 2, 3))
    roll_back(tracker, plan_rollback(tracker, first))
    with pytest.raises(TrackingError, match="nothing to go back to"):
        plan_rollback(tracker)
    fourth = register(tracker, tmp_path, promoted=now())
    move = plan_rollback(tracker)
    assert (move.before, move.after) == (fourth, first)
    roll_back(tracker, plan_rollback(tracker, third))
    fifth = register(tracker, tmp_path, promoted=now())
    move = plan_rollback(tracker)
    assert (move.before, move.after) == (fifth, third), "withdrawn once, and champion again since"
    assert plan_rollback(tracker, second).after == second


def test_versions_that_were_never_champion_are_refused(tracker, tmp_path):
    with pytest.raises(TrackingError, match="No version .* is the champion") as refused:
        plan_rollback(tracker)
    assert not refused.value.expected
    other = Tracker(TrackingConfig(experiment="another"), tmp_path)
    register(other, tmp_path, promoted="2026-01-03")
    with pytest.raises(
        TrackingError, match="There is one of another: give its --config, or tracking.experiment=another"
    ):
        plan_rollback(tracker)
    first, plain, second = (
        register(tracker, tmp_path, promoted=at) for at in ("2026-01-01", "", "2026-01-02")
    )
    with pytest.raises(TrackingError, match=f"Version {plain} .* was never promoted.*: {first}"):
        plan_rollback(tracker, plain)
    with pytest.raises(TrackingError, match=f"Version {second} .* is the champion"):
        plan_rollback(tracker, second)
