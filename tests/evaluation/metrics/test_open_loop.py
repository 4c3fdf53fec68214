"""Agreement of whole dreams with the real engine, by depth, from episodes written by hand."""

from __future__ import annotations

from builders import make_episode, make_task
from test_fidelity import pairs

from components.evaluation.metrics.open_loop import (
    Rehearsal,
    open_loop_metrics,
    read_rehearsals,
    write_rehearsals,
)
from components.experience.real_replay import Replay

EPISODES = [make_episode(make_task(), *[("go", "s")] * n, won=n < 4) for n in (3, 5, 5, 5)]
REPLAYS = [
    Replay(EPISODES[0], True, (True,) * 3),
    Replay(EPISODES[1], True, (True, True, False, False, False)),
    Replay(EPISODES[2], True, (False, True, True, True, True)),
    Replay(EPISODES[3], False, (False,) * 5, "contradicts itself", playable=False),
]
"""All right; wrong from its third state on; wrong in the first alone; without a world."""
REHEARSALS = [Rehearsal.of("cloned", found) for found in REPLAYS]


def test_open_loop_agreement_is_told_by_depth():
    metrics = open_loop_metrics(REHEARSALS, depths=(1, 3, 5))
    assert pairs(metrics, "fidelity/open_loop_playable") == [(0.75, 4)]
    assert pairs(metrics, *(f"fidelity/open_loop_exact/{d}" for d in (1, 3, 5))) == [
        (0.5, 4),
        (0.5, 4),
        (round(1 / 3, 6), 3),
    ]
    assert pairs(metrics, *(f"fidelity/open_loop_unbroken/{d}" for d in (1, 3, 5))) == [
        (0.5, 4),
        (0.25, 4),
        (0.0, 3),
    ]
    assert pairs(metrics, *(f"fidelity/rollout_agreement/{d}" for d in (1, 3, 5))) == [
        (0.0, 0),
        (1.0, 1),
        (1.0, 1),
    ]


def test_rehearsals_come_back_as_they_were(tmp_path):
    write_rehearsals(tmp_path / "rehearsals.jsonl", REHEARSALS)
    assert read_rehearsals(tmp_path / "rehearsals.jsonl") == REHEARSALS
    assert open_loop_metrics([])["fidelity/open_loop_playable"].n == 0
