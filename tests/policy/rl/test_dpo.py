"""DPO's pairs, its acting policy and its reference. `test_trl_parity.py` compares the loss with TRL's."""

from __future__ import annotations

import math

import pytest
import torch
from builders import VOCABULARY, make_episode, make_model, make_task

from components.config import RLConfig
from components.config.algorithm_config import DPOConfig
from components.language.training.examples import Example, Segment
from components.policy.policy import Policy
from components.policy.rl.algorithms.choose import make_algorithm
from components.policy.rl.preferences import preference_loss, preference_pairs
from components.policy.rollout import Rollout


def rollout(won):
    episode = make_episode(make_task(), ("look", "s"), won=won)
    return Rollout(
        episode, Example([Segment([3], [False]), Segment([21, 22], [True, True])]), [-1.0, -1.0], idle=[False]
    )


def make_dpo(**dpo):
    policy = Policy(make_model(), VOCABULARY)
    return policy, make_algorithm(RLConfig(algorithm=DPOConfig(**dpo)), policy)


def shift_norm(policy, amount):
    with torch.no_grad():
        policy.model.model.norm.weight.add_(amount)
    return policy


def norm(policy):
    return policy.model.model.norm.weight[0].item()


def test_each_success_is_paired_with_one_failure():
    won = [rollout(True) for _ in range(3)]
    lost = [rollout(False) for _ in range(2)]
    assert preference_pairs([won[0], lost[0], won[1], lost[1], won[2]]) == [
        (won[0], lost[0]),
        (won[1], lost[1]),
    ]
    assert preference_pairs(won) == preference_pairs(lost) == preference_pairs([]) == []


def test_the_loss_is_minus_the_log_probability_of_the_preference():
    losses = preference_loss(torch.tensor([0.0, 2.0]), torch.tensor([0.0, -1.0]), beta=0.5)
    assert losses.tolist() == pytest.approx([math.log(2), math.log(1 + math.exp(-1.5))])


@pytest.mark.parametrize(
    ("sync_every", "expected"), [(1, [1, 2, 3, 4]), (2, [1, 1, 3, 3]), (0, [1, 1, 1, 1])]
)
def test_the_acting_policy_is_synchronised_as_often_as_configured(sync_every, expected):
    policy, dpo = make_dpo(sync_every=sync_every)
    acting_norms = []
    for iteration in range(4):
        acting_norms.append(norm(dpo.acting_policy(policy, iteration)))
        shift_norm(policy, 1.0)
    assert acting_norms == expected


@pytest.mark.parametrize(("sync_every", "moves"), [(1, True), (0, False)])
def test_the_reference_is_synchronised_with_the_acting_policy(sync_every, moves):
    policy, dpo = make_dpo(sync_every=sync_every)
    pair = [[rollout(True), rollout(False)]]
    dpo.acting_policy(policy, 0)
    (before,) = dpo.training_samples(pair, policy)
    dpo.acting_policy(shift_norm(policy, 3.0), 1)
    (after,) = dpo.training_samples(pair, policy)
    assert (before.targets["reference"] != after.targets["reference"]) == moves
    assert len(before.targets["reference"]) == 4


def test_acting_policy_and_reference_are_restored_from_a_state():
    policy, dpo = make_dpo(sync_every=3)
    dpo.acting_policy(policy, 0)
    state = dpo.state_dict()
    resumed = make_algorithm(dpo.config, policy)
    resumed.load_state_dict(
        {name: {key: value.clone() for key, value in weights.items()} for name, weights in state.items()}
    )
    shift_norm(policy, 1.0)
    assert norm(resumed.acting_policy(policy, 1)) == norm(dpo.acting_policy(policy, 1)) == 1.0
    pair = [[rollout(True), rollout(False)]]
    assert resumed.training_samples(pair, policy)[0].targets == dpo.training_samples(pair, policy)[0].targets
