"""HERO's rewards against numbers worked out by hand, and that its weight does what the paper's own does
not.
"""

from __future__ import annotations

import math

import pytest
from builders import make_episode, make_task

from components.language.training.examples import Example
from components.policy.rl.rewards import HybridRewards, Rewards, stratified_rewards
from components.policy.rollout import Rollout


def rollout(won, score):
    return Rollout(make_episode(make_task(), ("look", f"{score}"), won=won), Example([]))


def score(trajectory):
    return float(trajectory.states[-1])


def test_scores_rank_within_what_ended_alike_and_never_across():
    found = stratified_rewards([0, 1, 0, 1, 0], [0.9, 0.1, 0.1, 0.3, 0.5], alpha=0.2, beta=0.1)
    assert found == pytest.approx([0.2, 0.9, -0.2, 1.1, 0.0], abs=1e-4)
    assert stratified_rewards([0, 1], [0.7, 0.2], alpha=0.2, beta=0.1) == [0.0, 1.0], (
        "a stratum of one stands in the middle of its band"
    )
    assert stratified_rewards([0, 0], [0.5, 0.5], alpha=0.2, beta=0.1) == [0.0, 0.0], "and so do equals"


def test_the_weight_rises_with_the_deviation_of_the_scores_over_the_usual_one():
    rewards = HybridRewards(score)
    assert rewards.returns([rollout(False, 0.0), rollout(False, 1.0)])[1] == 1.0, (
        "nothing is usual before the first group"
    )
    _, calm = rewards.returns([rollout(False, 0.5), rollout(False, 0.5)])
    assert calm == pytest.approx(0.4 + 2.6 / (1 + math.exp(6 * 0.5)))
    usual = 0.9 * 0.5
    _, lively = rewards.returns([rollout(False, 0.0), rollout(False, 1.0)])
    assert lively == pytest.approx(0.4 + 2.6 / (1 + math.exp(-6 * (0.5 - usual)))) and lively > 1 > calm
    resumed = HybridRewards(score)
    resumed.load_state_dict(rewards.state_dict())
    group = [rollout(True, 0.2), rollout(False, 0.4)]
    assert resumed.returns(group) == rewards.returns(group)


def test_the_outcome_alone():
    assert Rewards().returns([rollout(True, 0.1), rollout(False, 0.9)]) == ([1.0, 0.0], 1.0)
