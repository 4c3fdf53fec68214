"""A policy that cheats the dream is caught by the real engine; one that learns, or a dream that merely errs,
is let go on.
"""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from components.errors import TrainingError
from components.evaluation.dream_watch import DreamWatch
from components.language.training.examples import Example
from components.policy.rollout import Rollout
from components.records import Trajectory


@pytest.fixture(scope="module")
def honest(played):
    return [Rollout(episode, Example([])) for episode in played["expert"]]


@pytest.fixture(scope="module")
def cheated(played):
    """Episodes whose last step the dream rewards and the real engine does not."""
    lost = [episode for episode in played["random"] if not episode.success]
    return [Rollout(rewarded(episode), Example([])) for episode in lost]


def rewarded(episode: Trajectory) -> Trajectory:
    return replace(episode, steps=(*episode.steps[:-1], replace(episode.steps[-1], reward=1.0, done=True)))


def lost(rollouts):
    return [Rollout(replace(r.trajectory, steps=r.trajectory.steps[:1]), Example([])) for r in rollouts]


def make_watch(adapter, **changes):
    return DreamWatch(adapter, **{"every": 2, "most": 8, "floor": 0.8, **changes})


def test_it_looks_as_often_as_it_should_and_counts_its_real_steps(adapter, honest):
    watch = make_watch(adapter)
    idle = watch.look(0, honest, {})
    assert math.isnan(idle["rollout_agreement"]) and idle["check_interactions"] == 0
    found = watch.look(1, honest + lost(honest), {})
    assert found["rollout_agreement"] == 1.0 and found["watched_success_rate"] == 0.5
    assert found["check_interactions"] >= 8
    assert watch.look(1, lost(honest), {})["check_interactions"] == 0, "nothing was won"
    assert make_watch(adapter, every=0).look(1, honest, {})["check_interactions"] == 0


def test_more_dreams_won_and_fewer_of_them_real_ends_the_stage(adapter, cheated):
    series = {"success_rate": [0.5, 0.9, 0.9]}
    with pytest.raises(
        TrainingError,
        match=r"cheats the dream: .* confirms 0\.000 \(n=8.*rose from 0\.50 to 1\.00 \(iteration 4\)",
    ):
        make_watch(adapter).look(3, cheated, series)


def test_a_fall_of_agreement_ends_the_stage_above_the_floor_too(adapter, honest, cheated):
    """Half of them confirmed, where all were: no floor is needed; that one or two are not is chance."""
    series = {
        "success_rate": [0.2, 0.9],
        "rollout_agreement": [math.nan, 1.0],
        "replayed_successes": [math.nan, 16.0],
    }
    with pytest.raises(
        TrainingError,
        match=r"confirms 0\.500 \(n=12.*in the looks before, 16 of 16, while its dreamed success rose",
    ):
        make_watch(adapter, floor=0.0, most=12).look(3, honest[:6] + cheated[:6], series)
    found = make_watch(adapter, floor=0.0, most=12).look(3, honest[:10] + cheated[:2], series)
    assert found["rollout_agreement"] == pytest.approx(10 / 12) and found["replayed_successes"] == 12
    without = make_watch(adapter, floor=0.0, most=12).look(
        3, honest[:6] + cheated[:6], {"success_rate": [0.2, 0.9]}
    )
    assert without["rollout_agreement"] == 0.5, "no look before: nothing has fallen"


def test_a_dream_that_errs_without_more_success_is_measured_alone(adapter, cheated):
    found = make_watch(adapter).look(3, cheated, {"success_rate": [1.0, 0.4]})
    assert found["rollout_agreement"] == 0.0
