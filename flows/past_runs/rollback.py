"""Returns to an earlier champion: moves the alias in MLflow's registry and records the move in tags.

Nothing is deleted.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime

from components.errors import TrackingError
from components.tracking.mlflow_adapter.tracker import Tracker
from flows.stages.promote import PROMOTED_AT

CHAMPION = "champion"
WITHDRAWN_AT = "dreamgym.withdrawn_at"
"""Tag of a version: when it was withdrawn, UTC, ISO 8601."""


@dataclass(frozen=True)
class Move:
    """A change of the champion: version before, version after, and the run that made the latter."""

    before: str
    after: str
    run_id: str


def plan_rollback(tracker: Tracker, target: str = "") -> Move:
    """Return the move to the version `target`, or to the champion before the present one.

    Raises:
        TrackingError: there is no champion, no earlier one, or `target` was never promoted.
    """
    versions = tracker.versions("policy")
    current = tracker.require_champion()
    promoted = {version: tags[PROMOTED_AT] for version, tags in versions.items() if PROMOTED_AT in tags}
    if target and (target not in promoted or target == current):
        state = "is the champion" if target == current else "was never promoted"
        problem = f"Version {target} of {tracker.model_name('policy')} {state}."
        others = sorted((version for version in promoted if version != current), key=int)
        raise TrackingError(
            problem,
            f"Versions that were: {', '.join(others) or 'none'}.",
            "Name one of them, or leave --to out.",
        )
    not_withdrawn = {
        version for version, since in promoted.items() if versions[version].get(WITHDRAWN_AT, "") < since
    }
    since = promoted.get(current, datetime.now(UTC).isoformat())
    earlier = [version for version in not_withdrawn if version != current and promoted[version] < since]
    if not target and not earlier:
        problem = f"Version {current} of {tracker.model_name('policy')} is the first champion."
        raise TrackingError(problem, "Expected an earlier one.", "There is nothing to go back to.")
    after = target or max(earlier, key=lambda version: promoted[version])
    return Move(current, after, versions[after].get("dreamgym.run_id", ""))


def roll_back(tracker: Tracker, move: Move) -> None:
    """Make `move.after` the champion; tag `move.before` and all champions since as withdrawn."""
    promoted = {version: tags.get(PROMOTED_AT, "") for version, tags in tracker.versions("policy").items()}
    tracker.set_alias("policy", CHAMPION, move.after)
    now = datetime.now(UTC).isoformat(timespec="microseconds")
    tracker.tag_version("policy", move.after, {PROMOTED_AT: now})
    for version in promoted:
        if version == move.before or promoted[version] > promoted[move.after]:
            tracker.tag_version("policy", version, {WITHDRAWN_AT: now})
