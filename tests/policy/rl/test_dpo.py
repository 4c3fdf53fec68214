"""DPO's pairs, and who plays and what is held on to at each iteration; the loss itself is compared with
TRL's.
"""

from __future__ import annotations

import math

import pytest
import torch
from builders import VOCABULARY, make_episode, make_model, make_task

from components.config import RLConfig
from components.config.algorithm_config import DPOConfig
from components.language.training.examples import Example, Segment
from components.policy.policy import Policy
from components.policy.rl.algorithms import make_algorithm
from components.policy.rl.dpo import preference_loss, preference_pairs
from components.policy.rollout import Rollout


def rollout(won):
    episode = make_episode(make_task(), ("look", "s"), won=won)
    return Rollout(
        episode, Example([Segment([3], [False]), Segment([21, 22], [True, True])]), [-1.0, -1.0], idle=[False]
    )


def begun(**dpo):
    policy = Policy(make_model(), VOCABULARY)
    return policy, make_algorithm(RLConfig(algorithm=DPOConfig(**dpo)), policy)


def changed(policy, amount):
    with torch.no_grad():
        policy.model.model.norm.weight.add_(amount)
    return policy


def norm(policy):
    return policy.model.model.norm.weight[0].item()


def test_each_success_is_paired_with_one_failure():
    won, lost = [rollout(True) for _ in range(3)], [rollout(False) for _ in range(2)]
    assert preference_pairs([won[0], lost[0], won[1], lost[1], won[2]]) == [
        (won[0], lost[0]),
        (won[1], lost[1]),
    ]
    assert preference_pairs(won) == preference_pairs(lost) == preference_pairs([]) == []


def test_the_loss_is_the_log_of_the_probability_of_the_preference():
    found = preference_loss(torch.tensor([0.0, 2.0]), torch.tensor([0.0, -1.0]), beta=0.5)
    assert found.tolist() == pytest.approx([math.log(2), math.log(1 + math.exp(-1.5))])


@pytest.mark.parametrize(("sync_every", "wanted"), [(1, [1, 2, 3, 4]), (2, [1, 1, 3, 3]), (0, [1, 1, 1, 1])])
def test_what_plays_follows_what_is_trained_as_often_as_configured(sync_every, wanted):
    policy, dpo = begun(sync_every=sync_every)
    played = []
    for iteration in range(4):
        played.append(norm(dpo.acting_policy(policy, iteration)))
        changed(policy, 1.0)
    assert played == wanted


@pytest.mark.parametrize(("sync_every", "moves"), [(1, True), (0, False)])
def test_the_reference_moves_with_the_policy_that_plays(sync_every, moves):
    policy, dpo = begun(sync_every=sync_every)
    pair = [[rollout(True), rollout(False)]]
    dpo.acting_policy(policy, 0)
    (before,) = dpo.training_samples(pair, policy)
    dpo.acting_policy(changed(policy, 3.0), 1)
    (after,) = dpo.training_samples(pair, policy)
    assert (before.targets["reference"] != after.targets["reference"]) == moves
    assert len(before.targets["reference"]) == 4


def test_both_copies_come_back_from_a_checkpoint():
    policy, dpo = begun(sync_every=3)
    dpo.acting_policy(policy, 0)
    kept = dpo.state_dict()
    resumed = make_algorithm(dpo.config, policy)
    resumed.load_state_dict(
        {name: {key: value.clone() for key, value in weights.items()} for name, weights in kept.items()}
    )
    changed(policy, 1.0)
    assert norm(resumed.acting_policy(policy, 1)) == norm(dpo.acting_policy(policy, 1)) == 1.0
    pair = [[rollout(True), rollout(False)]]
    assert resumed.training_samples(pair, policy)[0].targets == dpo.training_samples(pair, policy)[0].targets
