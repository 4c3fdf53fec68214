"""Back to an earlier champion: the alias moves in the registry, nothing is deleted, and what was done is left
in tags.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime

from components.errors import TrackingError
from components.tracking.mlflow_adapter.tracker import Tracker
from flows.stages.promote import PROMOTED_AT

CHAMPION, WITHDRAWN_AT = "champion", "dreamgym.withdrawn_at"


@dataclass(frozen=True)
class Move:
    """From which version to which, and the run that made the latter."""

    before: str
    after: str
    run_id: str


def plan_rollback(tracker: Tracker, wanted: str = "") -> Move:
    """The move to the version `wanted`, or to the champion before the present one.

    Raises:
        TrackingError: there is no champion, no earlier one, or `wanted` was never promoted.
    """
    versions, current = tracker.versions("policy"), tracker.require_champion()
    promoted = {version: tags[PROMOTED_AT] for version, tags in versions.items() if PROMOTED_AT in tags}
    if wanted and (wanted not in promoted or wanted == current):
        state = "is the champion" if wanted == current else "was never promoted"
        found = f"Version {wanted} of {tracker.model_name('policy')} {state}."
        others = sorted((version for version in promoted if version != current), key=int)
        raise TrackingError(
            found,
            f"Versions that were: {', '.join(others) or 'none'}.",
            "Name one of them, or leave --to out.",
        )
    sound = {
        version for version, since in promoted.items() if versions[version].get(WITHDRAWN_AT, "") < since
    }
    since = promoted.get(current, datetime.now(UTC).isoformat())
    earlier = [version for version in sound if version != current and promoted[version] < since]
    if not wanted and not earlier:
        found = f"Version {current} of {tracker.model_name('policy')} is the first champion."
        raise TrackingError(found, "Expected an earlier one.", "There is nothing to go back to.")
    after = wanted or max(earlier, key=lambda version: promoted[version])
    return Move(current, after, versions[after].get("dreamgym.run_id", ""))


def roll_back(tracker: Tracker, move: Move) -> None:
    """Do it: `move.after` is the champion from now on; `move.before`, and who was champion between the two,
    are marked as withdrawn.
    """
    promoted = {version: tags.get(PROMOTED_AT, "") for version, tags in tracker.versions("policy").items()}
    tracker.set_alias("policy", CHAMPION, move.after)
    now = datetime.now(UTC).isoformat(timespec="microseconds")
    tracker.tag_version("policy", move.after, {PROMOTED_AT: now})
    for version in promoted:
        if version == move.before or promoted[version] > promoted[move.after]:
            tracker.tag_version("policy", version, {WITHDRAWN_AT: now})
