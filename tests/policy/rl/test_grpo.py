"""GRPO's advantages and clipped loss against numbers computed by hand."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch
from builders import make_episode, make_task
from loop_builders import advantages_of
from pydantic import ValidationError

from components.config.algorithm_config import GRPOConfig
from components.language.training.examples import Example, Segment
from components.policy.rl.advantages.family_normalisation import normalise_families
from components.policy.rl.advantages.group_advantages import group_advantages
from components.policy.rl.advantages.step_credit.gigpo import step_advantages
from components.policy.rl.advantages.step_credit.salt import merged_advantages
from components.policy.rl.algorithms.grpo import GRPO, per_token
from components.policy.rl.algorithms.policy_gradient import clipped_loss, kl_estimate, mean_weights
from components.policy.rl.rewards.outcome_rewards import HybridRewards, Rewards
from components.policy.rollout import Rollout


@pytest.mark.parametrize(
    ("returns", "scale", "expected"),
    [
        ([1, 0], True, [1, -1]),
        ([1, 0, 0, 0], True, [math.sqrt(3), -1 / math.sqrt(3), -1 / math.sqrt(3), -1 / math.sqrt(3)]),
        ([1, 0, 0, 0], False, [0.75, -0.25, -0.25, -0.25]),
        ([1, 1, 1], True, [0, 0, 0]),
        ([0, 0], False, [0, 0]),
        ([0.5, 1.0, 0.0], True, [0, math.sqrt(1.5), -math.sqrt(1.5)]),
    ],
)
def test_advantages_are_deviations_from_the_groups_mean(returns, scale, expected):
    assert group_advantages([float(r) for r in returns], scale=scale) == pytest.approx(expected, abs=1e-5)


def ratios(*values):
    return torch.tensor([math.log(v) for v in values], requires_grad=True), torch.zeros(len(values))


def test_the_loss_is_the_larger_of_the_plain_and_the_clipped_one():
    new, old = ratios(1.5, 1.5, 0.5, 0.5, 1.1, 1.0)
    loss, clipped = clipped_loss(new, old, torch.tensor([1.0, -1.0, 1.0, -1.0, 2.0, 0.0]), 0.2, 0.2)
    # -min(1.5, 1.2) - min(-1.5, -1.2) - min(0.5, 0.8) - min(-0.5, -0.8) - 2 * 1.1 - 0
    assert loss.sum().item() == pytest.approx(-1.2 + 1.5 - 0.5 + 0.8 - 2.2, abs=1e-5)
    assert clipped.item() == 2


def test_clipped_tokens_have_no_gradient():
    new, old = ratios(1.5, 1.5, 0.5, 0.5, 1.0, 1.0)
    loss, _ = clipped_loss(new, old, torch.tensor([1.0, -1.0, 1.0, -1.0, 2.0, -3.0]), 0.2, 0.2)
    loss.sum().backward()
    assert new.grad.tolist() == pytest.approx([0.0, 1.5, -0.5, 0.0, -2.0, 3.0], abs=1e-5)


def test_equal_probabilities_give_the_plain_policy_gradient():
    new = torch.tensor([-1.0, -2.0], requires_grad=True)
    loss, clipped = clipped_loss(new, torch.tensor([-1.0, -2.0]), torch.tensor([0.5, -0.5]), 0.2, 0.2)
    loss.sum().backward()
    assert (loss.sum().item(), clipped.item()) == (0.0, 0)
    assert new.grad.tolist() == [-0.5, 0.5]


def test_the_mean_over_tokens_and_the_mean_of_the_episodes_means():
    assert mean_weights([1, 3], "token") == [0.25, 0.25]
    assert mean_weights([1, 3], "episode") == [0.5, 1 / 6]


def make_rollout(reward, *states):
    """Return a rollout through `states`, with one reply of two tokens per step."""
    task = make_task()
    episode = make_episode(
        task, *[(f"go to desk {n}", state) for n, state in enumerate(states[1:])], won=reward
    )
    replies = [Segment([1, 2], [True, True]) for _ in episode.steps]
    return Rollout(episode, Example([Segment([0], [False]), *replies]), idle=[False] * len(replies))


def test_steps_are_compared_among_replies_to_the_same_state():
    start = make_task().initial_state
    direct, late, lost = (
        make_rollout(True, start, "end"),
        make_rollout(True, start, "hall", "end"),
        make_rollout(False, start, "hall", "lost"),
    )
    advantages = step_advantages([direct, late, lost], [1.0, 1.0, 0.0], discount=0.5)
    assert advantages == [[1 - 0.5], [0.5 - 0.5, 1 - 0.5], [0 - 0.5, 0 - 0.5]]
    assert per_token(late, advantages[1]) == [0.0, 0.0, 0.5, 0.5]


def test_a_state_that_occurs_once_gives_no_step_advantage():
    start = make_task().initial_state
    group = [make_rollout(True, start, "hall", "end"), make_rollout(False, start, "cellar", "lost")]
    advantages = step_advantages(group, [1.0, 0.0], discount=1.0)
    assert advantages == [[0.5, 0.0], [-0.5, 0.0]]


def test_steps_that_winners_and_losers_share_are_worth_their_mean():
    """By hand, with advantages 1, 1 and -2: all three leave `start` for `hall`; two go on to `room`."""
    start = make_task().initial_state
    group = [
        make_rollout(True, start, "hall", "room", "end"),
        make_rollout(True, start, "hall", "end"),
        make_rollout(False, start, "hall", "room", "lost"),
    ]
    advantages = merged_advantages(group, [1.0, 1.0, -2.0])
    assert advantages == [[0.0, -0.5, 1.0], [0.0, 1.0], [0.0, -0.5, -2.0]]
    group[2].idle.append(False)
    assert merged_advantages(group, [1.0, 1.0, -2.0])[2] == [0.0, -0.5, -2.0, -2.0], "no answer, no edge"


def test_salt_takes_the_place_of_other_step_advantages():
    start = make_task().initial_state
    group = [make_rollout(True, start, "hall", "end"), make_rollout(False, start, "hall", "lost")]
    options = GRPOConfig(step_credit="salt", idle_penalty=0.0, negative_advantage_weight=0.5)
    samples = GRPO(options, Rewards()).training_samples([group], None)
    assert [advantages_of([sample])[0] for sample in samples] == [
        pytest.approx([0.0, 0.0, 1.0, 1.0], abs=1e-5),
        pytest.approx([0.0, 0.0, -0.5, -0.5], abs=1e-5),
    ]
    for option in ({"step_weight": 1.0}, {"discount": 0.5}):
        with pytest.raises(ValidationError, match="no effect with step_credit: salt"):
            GRPOConfig(step_credit="salt", **option)


@pytest.mark.parametrize("credit", [{"step_credit": "salt"}, {"step_credit": "gigpo"}])
@pytest.mark.parametrize("rewards", [Rewards(), HybridRewards(lambda episode: 0.3)])
def test_a_group_of_one_is_left_out(credit, rewards):
    """The others of its group were left out. It has nothing to be compared with."""
    alone = make_rollout(True, make_task().initial_state, "hall", "end")
    algorithm = GRPO(GRPOConfig(idle_penalty=0.0, scale_rewards=False, **credit), rewards)
    assert algorithm.training_samples([[alone], []], None) == []
    assert merged_advantages([alone], [0.0]) == [[0.0, 0.0]]


def of_family(family, won, *states):
    rollout = make_rollout(won, make_task().initial_state, *states)
    task = replace(rollout.trajectory.task, family=family)
    rollout.trajectory = replace(rollout.trajectory, task=task)
    return rollout


def test_credit_is_normalised_within_each_family_of_tasks():
    """By hand: the tokens of family a have 1, 1, 4, 4, 4, -2 with a mean of 2; family b has one value."""
    groups = [
        [of_family("a", True, "end")],
        [of_family("b", True, "end")],
        [of_family("a", True, "end"), of_family("a", False, "end")],
    ]
    for rollout, lengths in ((groups[0][0], [2]), (groups[2][0], [3]), (groups[2][1], [1])):
        rollout.example = Example([Segment([1] * n, [True] * n) for n in lengths])
    assert [one.reply_lengths for group in groups for one in group][0] == [2]
    first, alone, third = normalise_families(groups, [[[1.0]], [[2.0]], [[4.0], [-2.0]]])
    deviation = math.sqrt((2 * 1 + 3 * 4 + 16) / 6)
    assert first == [[pytest.approx(-1 / deviation)]] and alone == [[2.0]]
    assert third == [[pytest.approx(2 / deviation)], [pytest.approx(-4 / deviation)]]


def test_groups_without_variance_get_no_credit_from_their_family():
    """By hand: a success has 5 replies and a failure 20, so +1 and -1 have a mean of -0.6, deviation 0.8.

    With the tokens of all three groups in the mean, each lost and each won episode would get +0.469.
    """
    won, lost = (True, *["hall"] * 4, "end"), (False, *["hall"] * 19, "lost")
    mixed = [of_family("a", *episode) for episode in (won, won, lost, lost)]
    groups = [mixed, [of_family("a", *lost) for _ in range(2)], [of_family("a", *won) for _ in range(2)]]
    options = GRPOConfig(
        normalise_families=True, step_weight=0.0, idle_penalty=0.0, negative_advantage_weight=1.0
    )
    samples = GRPO(options, Rewards()).training_samples(groups, None)
    assert [one for sample in samples for one in sample.rollouts] == mixed
    assert all(sample.has_signal for sample in samples)
    advantages = [values for sample in samples for values in advantages_of([sample])]
    assert advantages == [
        pytest.approx([value] * len(row), abs=1e-5)
        for value, row in zip((2.0, 2.0, -0.5, -0.5), advantages, strict=True)
    ]
    assert normalise_families(groups[1:], [[[0.0] * 20] * 2, [[0.0] * 5] * 2])[0] == [[0.0] * 20] * 2


def test_penalties_are_subtracted_after_families_are_normalised():
    """A family of lost episodes has nothing to compare: one idle reply must not make the others look good."""
    lost = [of_family("a", False, "hall", "lost") for _ in range(2)]
    lost[0].idle[0] = True
    options = GRPOConfig(normalise_families=True, idle_penalty=0.5, negative_advantage_weight=0.5)
    (sample,) = GRPO(options, Rewards()).training_samples([lost], None)
    assert advantages_of([sample])[0] == [-0.25, -0.25, 0.0, 0.0] and not sample.has_signal


def test_clip_higher_raises_the_upper_clip_only():
    new, old = ratios(1.25, 1.35, 0.75)
    loss, clipped = clipped_loss(new, old, torch.tensor([1.0, 1.0, -1.0]), 0.2, 0.28)
    assert loss.tolist() == pytest.approx([-1.25, -1.28, 0.8], abs=1e-5) and clipped.item() == 2


def test_the_kl_estimate_is_zero_for_equal_policies_and_never_negative():
    new, reference = torch.tensor([-1.0, -1.0, -2.0]), torch.tensor([-1.0, -2.0, -1.0])
    assert kl_estimate(new, reference).tolist() == pytest.approx([0.0, math.exp(-1), math.e - 2], abs=1e-5)
