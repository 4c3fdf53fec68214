"""HERO's rewards and group weights against numbers computed by hand."""

from __future__ import annotations

import math

import pytest
from builders import make_episode, make_task

from components.language.training.examples import Example
from components.policy.rl.rewards.outcome_rewards import HybridRewards, Rewards, stratified_rewards
from components.policy.rollout import Rollout


def rollout(won, score):
    return Rollout(make_episode(make_task(), ("look", f"{score}"), won=won), Example([]))


def score(trajectory):
    return float(trajectory.states[-1])


def test_scores_rank_within_failures_and_successes_never_across():
    rewards = stratified_rewards([0, 1, 0, 1, 0], [0.9, 0.1, 0.1, 0.3, 0.5], alpha=0.2, beta=0.1)
    assert rewards == pytest.approx([0.2, 0.9, -0.2, 1.1, 0.0], abs=1e-4)
    assert stratified_rewards([0, 1], [0.7, 0.2], alpha=0.2, beta=0.1) == [0.0, 1.0], (
        "a single episode is in the middle of its band"
    )
    assert stratified_rewards([0, 0], [0.5, 0.5], alpha=0.2, beta=0.1) == [0.0, 0.0], (
        "equal scores are in the middle"
    )


def test_the_weight_rises_with_the_scores_deviation_relative_to_its_running_mean():
    rewards = HybridRewards(score)
    first_weight = rewards.returns([rollout(False, 0.0), rollout(False, 1.0)])[1]
    assert first_weight == pytest.approx(0.4 + 2.6 / 2), "as one with the mean deviation"
    _, low_weight = rewards.returns([rollout(False, 0.5), rollout(False, 0.5)])
    assert low_weight == pytest.approx(0.4 + 2.6 / (1 + math.exp(6 * 0.5)))
    running_mean = 0.9 * 0.5
    _, high_weight = rewards.returns([rollout(False, 0.0), rollout(False, 1.0)])
    assert (
        high_weight == pytest.approx(0.4 + 2.6 / (1 + math.exp(-6 * (0.5 - running_mean))))
        and high_weight > 1.7 > low_weight
    )
    resumed = HybridRewards(score)
    resumed.load_state_dict(rewards.state_dict())
    group = [rollout(True, 0.2), rollout(False, 0.4)]
    assert resumed.returns(group) == rewards.returns(group)


def test_outcome_rewards_ignore_the_scores():
    assert Rewards().returns([rollout(True, 0.1), rollout(False, 0.9)]) == ([1.0, 0.0], 1.0)


def test_a_group_of_one_has_the_middle_of_its_band_and_a_weight():
    """The others of its group were left out, such as those that the dream did not answer."""
    for won, middle in ((True, 1.0), (False, 0.0)):
        returns, weight = HybridRewards(score).returns([rollout(won, 0.3)])
        assert returns == [middle] and weight == pytest.approx(0.4 + 2.6 / 2)
