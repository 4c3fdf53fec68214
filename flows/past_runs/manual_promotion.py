"""Promotes the policy of a run by a person's decision; name and reason are tags of its version in MLflow."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

from components.errors import ConfigError, DataError, TrackingError
from components.tracking.manifest import Manifest
from components.tracking.mlflow_adapter.tracker import Tracker
from components.tracking.runs import find_run
from flows.past_runs.rollback import CHAMPION, Move
from flows.stages.promote import PROMOTED_AT

PROMOTED_BY = "dreamgym.promoted_by"
"""Tag of a version: the person who decided."""
PROMOTION_REASON = "dreamgym.promotion_reason"
"""Tag of a version: why."""


def promote_by_hand(tracker: Tracker, root: Path, run: str, person: str, reason: str) -> Move:
    """Make the policy of `run` the champion and record who decided and why; return the move.

    Raises:
        ConfigError: there is no name or no reason.
        DataError: there is no such run, or it registered no policy.
        TrackingError: its policy is not in this store, or is the champion already.
    """
    if not person.strip() or not reason.strip():
        raise ConfigError(
            "--by or --reason is empty.",
            "Expected the name of the person who decides, and why.",
            "Type dreamgym promote RUN --by NAME --reason TEXT.",
        )
    manifest = Manifest.load(find_run(root / "runs", run))
    name = tracker.model_name("policy")
    versions = [model.version for model in manifest.models if model.name == name]
    if not versions:
        raise DataError(
            f"Run {manifest.run_id} registered no version of {name}.",
            "Expected a finished run of `dreamgym retrain`, with the tracking settings of this config.",
            f"Give the run's config: --config runs/{manifest.run_id}/config.json",
        )
    version = versions[-1]
    known = tracker.versions("policy")
    if known.get(version, {}).get("dreamgym.run_id") is None:
        raise TrackingError(
            f"Version {version} of {name} is not in {tracker.uri}.",
            "Expected the store that the run was tracked in.",
            f"Give the run's config: --config runs/{manifest.run_id}/config.json",
        )
    before = tracker.alias("policy", CHAMPION) or ""
    if before == version:
        raise TrackingError(f"Version {version} of {name} is the champion already.")
    tracker.set_alias("policy", CHAMPION, version)
    now = datetime.now(UTC).isoformat(timespec="microseconds")
    tags = {PROMOTED_AT: now, PROMOTED_BY: person.strip(), PROMOTION_REASON: reason.strip()}
    tracker.tag_version("policy", version, tags)
    return Move(before, version, manifest.run_id)
