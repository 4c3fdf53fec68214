"""Advantages and the clipped loss against numbers worked out by hand."""

from __future__ import annotations

import math

import pytest
import torch

from components.policy.grpo import clipped_loss, group_advantages, mean_shares


@pytest.mark.parametrize(
    ("returns", "normalise", "wanted"),
    [
        ([1, 0], True, [1, -1]),
        ([1, 0, 0, 0], True, [math.sqrt(3), -1 / math.sqrt(3), -1 / math.sqrt(3), -1 / math.sqrt(3)]),
        ([1, 0, 0, 0], False, [0.75, -0.25, -0.25, -0.25]),
        ([1, 1, 1], True, [0, 0, 0]),
        ([0, 0], False, [0, 0]),
        ([0.5, 1.0, 0.0], True, [0, math.sqrt(1.5), -math.sqrt(1.5)]),
    ],
)
def test_advantages_are_deviations_from_the_groups_mean(returns, normalise, wanted):
    assert group_advantages([float(r) for r in returns], normalise=normalise) == pytest.approx(wanted, abs=1e-5)


def ratios(*values):
    return torch.tensor([math.log(v) for v in values], requires_grad=True), torch.zeros(len(values))


def test_the_loss_takes_the_worse_of_ratio_and_clipped_ratio():
    new, old = ratios(1.5, 1.5, 0.5, 0.5, 1.1, 1.0)
    loss, clipped = clipped_loss(new, old, torch.tensor([1.0, -1.0, 1.0, -1.0, 2.0, 0.0]), 0.2)
    # -min(1.5, 1.2) - min(-1.5, -1.2) - min(0.5, 0.8) - min(-0.5, -0.8) - 2 * 1.1 - 0
    assert loss.item() == pytest.approx(-1.2 + 1.5 - 0.5 + 0.8 - 2.2, abs=1e-5)
    assert clipped.item() == 2


def test_clipped_tokens_have_no_gradient_and_the_others_push_their_way():
    new, old = ratios(1.5, 1.5, 0.5, 0.5, 1.0, 1.0)
    loss, _ = clipped_loss(new, old, torch.tensor([1.0, -1.0, 1.0, -1.0, 2.0, -3.0]), 0.2)
    loss.backward()
    assert new.grad.tolist() == pytest.approx([0.0, 1.5, -0.5, 0.0, -2.0, 3.0], abs=1e-5)


def test_equal_probabilities_give_the_plain_policy_gradient():
    new = torch.tensor([-1.0, -2.0], requires_grad=True)
    loss, clipped = clipped_loss(new, torch.tensor([-1.0, -2.0]), torch.tensor([0.5, -0.5]), 0.2)
    loss.backward()
    assert (loss.item(), clipped.item()) == (0.0, 0)
    assert new.grad.tolist() == [-0.5, 0.5]


def test_the_mean_over_tokens_and_the_mean_of_the_episodes_means():
    assert mean_shares([1, 3], "token") == [0.25, 0.25]
    assert mean_shares([1, 3], "episode") == [0.5, 1 / 6]
