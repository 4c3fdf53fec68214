"""Steps that a dream disturbs on purpose enter neither the buffer nor a replay in reality."""

from __future__ import annotations

from dataclasses import replace

from builders import make_episode, make_task

from components.language.training.examples import Example
from components.policy.rollout import Rollout
from components.records import LOST_ACTION
from components.trajectories.replay_log import read_log
from flows.run.training.rl_training import keep_transitions, undisturbed


def test_lost_actions_are_in_no_log_and_in_no_replay(tmp_path):
    episode = make_episode(make_task(), ("look", "a"), ("look", "a"), ("take mug 1", "b"), won=True)
    lost = replace(episode.steps[1], reasoning=LOST_ACTION)
    rollout = Rollout(replace(episode, steps=(episode.steps[0], lost, episode.steps[2])), Example([]))
    kept = [episode.steps[0], replace(episode.steps[2], step=1)]  # steps of an episode are 0, 1, 2 ...
    assert keep_transitions(tmp_path / "replay", 0, [rollout]) == kept == read_log(tmp_path / "replay")
    (replayed,) = undisturbed([rollout])
    assert list(replayed.trajectory.steps) == kept and replayed.trajectory.success
