"""Agreement of whole dreamed episodes with the real engine, by episode length.

A single step is judged given its real history. A dream has only its own history, so it builds on its earlier
errors. Dreamed episodes are therefore replayed action by action in the real world that they described. States
are compared after 5, 10 and 20 steps. Of the dreamed successes, the share that the real engine confirms is
counted.
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
"""Steps after which the agreement with the real engine is reported."""


@dataclass(frozen=True)
class OpenLoopEpisode:
    """The replay of one dreamed episode of `policy`, without its texts.

    For the fields see `components.experience.real_replay.Replay`.
    """

    policy: str
    task_id: str
    success: bool
    confirmed: bool
    playable: bool
    same: tuple[bool, ...]

    @classmethod
    def of(cls, policy: str, replay: Replay) -> OpenLoopEpisode:
        """Return the outcome of a replay without its texts."""
        return cls(
            policy,
            replay.dreamed.task.id,
            replay.dreamed.success,
            replay.confirmed,
            replay.playable,
            replay.same,
        )


def open_loop_metrics(
    episodes: Sequence[OpenLoopEpisode], depths: Sequence[int] = DEPTHS
) -> dict[str, Estimate]:
    """Return the agreement by depth d; the intervals are clustered by task.

    - `open_loop_exact/d`: share of the d-th states that are the real engine's word for word.
    - `open_loop_unbroken/d`: share of the episodes whose first d states all are.
    - `open_loop_playable`: share of the episodes that describe a consistent world. The others contradict
      themselves, and count as wrong in the two metrics above.
    - `rollout_agreement/d`: share of the successes dreamed within d steps that the real engine confirms.

    The first two count episodes of at least d steps.
    """
    metrics = {
        "fidelity/open_loop_playable": _share([(episode, episode.playable) for episode in episodes]),
    }
    for depth in depths:
        long_episodes = [episode for episode in episodes if len(episode.same) >= depth]
        successes = [episode for episode in episodes if episode.success and len(episode.same) <= depth]
        metrics |= {
            f"fidelity/open_loop_exact/{depth}": _share([(e, e.same[depth - 1]) for e in long_episodes]),
            f"fidelity/open_loop_unbroken/{depth}": _share([(e, all(e.same[:depth])) for e in long_episodes]),
            f"fidelity/rollout_agreement/{depth}": _share([(e, e.confirmed) for e in successes]),
        }
    return metrics


def _share(outcomes: Sequence[tuple[OpenLoopEpisode, bool]]) -> Estimate:
    return clustered_proportion(
        [is_right for _, is_right in outcomes], [episode.task_id for episode, _ in outcomes]
    )


def write_open_loop_episodes(path: Path, episodes: Sequence[OpenLoopEpisode]) -> None:
    """Write the episodes as JSON Lines, one episode a line."""
    path.write_text("".join(json.dumps(asdict(episode)) + "\n" for episode in episodes), encoding="utf-8")


def read_open_loop_episodes(path: Path) -> list[OpenLoopEpisode]:
    """Return the episodes that `write_open_loop_episodes` wrote."""
    rows: list[dict[str, Any]] = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    return [OpenLoopEpisode(**{**row, "same": tuple(row["same"])}) for row in rows]
