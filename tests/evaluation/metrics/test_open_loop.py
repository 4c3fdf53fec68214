"""Agreement of whole dreamed episodes with the real engine, by depth, on hand-written episodes."""

from __future__ import annotations

from builders import make_episode, make_task
from test_fidelity import pairs

from components.evaluation.metrics.open_loop import (
    OpenLoopEpisode,
    open_loop_metrics,
    read_open_loop_episodes,
    write_open_loop_episodes,
)
from components.experience.real_replay import Replay

EPISODES = [make_episode(make_task(), *[("go", "s")] * n, won=n < 4) for n in (3, 5, 5, 5)]
REPLAYS = [
    Replay(EPISODES[0], True, (True,) * 3),
    Replay(EPISODES[1], True, (True, True, False, False, False)),
    Replay(EPISODES[2], True, (False, True, True, True, True)),
    Replay(EPISODES[3], False, (False,) * 5, "contradicts itself", playable=False),
]
"""All states right; wrong from the third state on; only the first wrong; no consistent world."""
OPEN_LOOP_EPISODES = [OpenLoopEpisode.of("cloned", replay) for replay in REPLAYS]


def test_open_loop_agreement_is_reported_by_depth():
    metrics = open_loop_metrics(OPEN_LOOP_EPISODES, depths=(1, 3, 5))
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


def test_open_loop_episodes_are_read_back_unchanged(tmp_path):
    write_open_loop_episodes(tmp_path / "episodes.jsonl", OPEN_LOOP_EPISODES)
    assert read_open_loop_episodes(tmp_path / "episodes.jsonl") == OPEN_LOOP_EPISODES
    assert open_loop_metrics([])["fidelity/open_loop_playable"].n == 0
