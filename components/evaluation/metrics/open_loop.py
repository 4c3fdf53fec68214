"""How long whole dreams stay true: dreamed episodes replayed action by action in the real world that they
described.

A single step is judged on its real history; a dream has only its own. What it gets wrong once, it builds on.
So episodes of 5, 10 and 20 steps are compared state by state, and of the dreamed successes it is counted how
many the real engine confirms.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from components.evaluation.metrics.intervals import Estimate, clustered_proportion
from components.experience.real_replay import Replay

DEPTHS = (5, 10, 20)
"""Steps at which the agreement with reality is reported."""


@dataclass(frozen=True)
class Rehearsal:
    """One dreamed episode of `policy` and what the real engine says of it: see
    `components.experience.real_replay.Replay`.
    """

    policy: str
    task_id: str
    success: bool
    confirmed: bool
    playable: bool
    same: tuple[bool, ...]

    @classmethod
    def of(cls, policy: str, found: Replay) -> Rehearsal:
        """The outcome of a replay without its texts."""
        return cls(
            policy, found.dreamed.task.id, found.dreamed.success, found.confirmed, found.playable, found.same
        )


def open_loop_metrics(rehearsals: Sequence[Rehearsal], depths: Sequence[int] = DEPTHS) -> dict[str, Estimate]:
    """Agreement by depth, over all episodes that go so far; intervals of clusters by task.

    `open_loop_exact/d`: share of the d-th states that are the real engine's to the letter;
    `open_loop_unbroken/d`: share of the episodes whose first d states all are; `open_loop_playable`: share of
    the episodes that describe a world at all (the others contradict themselves, and count as wrong in the two
    above); `rollout_agreement/d`: share of the successes dreamed within d steps that the real engine
    confirms.
    """
    metrics = {"fidelity/open_loop_playable": _share([(r, r.playable) for r in rehearsals])}
    for depth in depths:
        long = [r for r in rehearsals if len(r.same) >= depth]
        won = [r for r in rehearsals if r.success and len(r.same) <= depth]
        metrics |= {
            f"fidelity/open_loop_exact/{depth}": _share([(r, r.same[depth - 1]) for r in long]),
            f"fidelity/open_loop_unbroken/{depth}": _share([(r, all(r.same[:depth])) for r in long]),
            f"fidelity/rollout_agreement/{depth}": _share([(r, r.confirmed) for r in won]),
        }
    return metrics


def _share(found: Sequence[tuple[Rehearsal, bool]]) -> Estimate:
    return clustered_proportion([right for _, right in found], [rehearsal.task_id for rehearsal, _ in found])


def write_rehearsals(path: Path, rehearsals: Sequence[Rehearsal]) -> None:
    """Write them as JSON, one line each."""
    path.write_text(
        "".join(json.dumps(asdict(rehearsal)) + "\n" for rehearsal in rehearsals), encoding="utf-8"
    )


def read_rehearsals(path: Path) -> list[Rehearsal]:
    """Read `write_rehearsals` back."""
    rows: list[dict[str, Any]] = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    return [Rehearsal(**{**row, "same": tuple(row["same"])}) for row in rows]
