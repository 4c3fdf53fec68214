"""The watch stops a policy that exploits errors of the dream, and no other policy."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from components.environments.text_world.without_knowledge import WithoutKnowledge
from components.errors import TrainingError
from components.evaluation.dream_watch import DreamWatch
from components.language.training.examples import Example
from components.policy.rollout import Rollout
from components.records import Trajectory


@pytest.fixture(scope="module")
def real_successes(played):
    return [Rollout(episode, Example([])) for episode in played["expert"]]


@pytest.fixture(scope="module")
def false_successes(played):
    """Return rollouts whose last step the dream rewards and the real engine does not."""
    failures = [episode for episode in played["random"] if not episode.success]
    return [Rollout(with_final_reward(episode), Example([])) for episode in failures]


def with_final_reward(episode: Trajectory) -> Trajectory:
    return replace(episode, steps=(*episode.steps[:-1], replace(episode.steps[-1], reward=1.0, done=True)))


def shorten(rollouts):
    """Return the rollouts cut after their first step, so that none is a success."""
    return [Rollout(replace(r.trajectory, steps=r.trajectory.steps[:1]), Example([])) for r in rollouts]


def make_watch(adapter, **changes):
    return DreamWatch(adapter, **{"interval": 2, "max_replays": 8, "floor": 0.8, **changes})


def test_checks_follow_the_interval_and_count_their_real_steps(adapter, real_successes):
    watch = make_watch(adapter)
    unchecked = watch.check(0, real_successes, {})
    assert math.isnan(unchecked["rollout_agreement"]) and unchecked["check_interactions"] == 0
    values = watch.check(1, real_successes + shorten(real_successes), {})
    assert values["rollout_agreement"] == 1.0 and values["watched_success_rate"] == 0.5
    assert values["check_interactions"] >= 8
    assert watch.check(1, shorten(real_successes), {})["check_interactions"] == 0, (
        "there was no success to replay"
    )
    assert make_watch(adapter, interval=0).check(1, real_successes, {})["check_interactions"] == 0


def test_rising_success_with_agreement_below_the_floor_stops_rl(adapter, false_successes):
    series = {"success_rate": [0.5, 0.9, 0.9]}
    with pytest.raises(
        TrainingError,
        match=r"exploits errors of the dream.* confirms 0\.000 \(n=8.*rose from 0\.50 to 1\.00 \(iteration "
        r"4\)",
    ):
        make_watch(adapter).check(3, false_successes, series)


def test_a_fall_of_the_agreement_stops_rl_even_above_the_floor(adapter, real_successes, false_successes):
    """Half are confirmed after all were: RL stops. Ten of twelve are within chance: RL continues."""
    series = {
        "success_rate": [0.2, 0.9],
        "rollout_agreement": [math.nan, 1.0],
        "replayed_successes": [math.nan, 16.0],
    }
    with pytest.raises(
        TrainingError,
        match=r"confirms 0\.500 \(n=12.*in earlier checks 16 of 16\), while its dreamed success rate rose",
    ):
        make_watch(adapter, floor=0.0, max_replays=12).check(
            3, real_successes[:6] + false_successes[:6], series
        )
    values = make_watch(adapter, floor=0.0, max_replays=12).check(
        3, real_successes[:10] + false_successes[:2], series
    )
    assert values["rollout_agreement"] == pytest.approx(10 / 12) and values["replayed_successes"] == 12
    first_check = make_watch(adapter, floor=0.0, max_replays=12).check(
        3, real_successes[:6] + false_successes[:6], {"success_rate": [0.2, 0.9]}
    )
    assert first_check["rollout_agreement"] == 0.5, "without an earlier check nothing has fallen"


def test_low_agreement_without_rising_success_does_not_stop_rl(adapter, false_successes):
    values = make_watch(adapter).check(3, false_successes, {"success_rate": [1.0, 0.4]})
    assert values["rollout_agreement"] == 0.0


def test_a_generated_task_without_a_real_world_is_neither_confirmed_nor_denied(adapter, false_successes):
    """A plain world cannot build the world of a made-up task; an adapter that can is asked to."""
    made_up = [
        Rollout(
            replace(r.trajectory, task=replace(r.trajectory.task, parent=r.trajectory.task.id)), r.example
        )
        for r in false_successes
    ]
    series = {"success_rate": [0.5]}
    plain = make_watch(WithoutKnowledge(adapter))
    values = plain.check(1, made_up, series)
    assert math.isnan(values["rollout_agreement"]) and values["check_interactions"] == 0
    with pytest.raises(TrainingError, match="exploits errors"):
        plain.check(1, [*made_up, *false_successes], series)
