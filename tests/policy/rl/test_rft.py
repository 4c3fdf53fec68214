"""Rejection-sampling fine-tuning: kept successes, loss, and the restart of every iteration."""

from __future__ import annotations

import pytest
import torch
from builders import VOCABULARY, make_episode, make_model, make_task

from components.config import RLConfig
from components.config.algorithm_config import RFTConfig
from components.language.training.examples import Example, Segment
from components.policy.policy import Policy
from components.policy.rl.algorithms import rft as rft_module
from components.policy.rl.algorithms.algorithm import LossInputs
from components.policy.rl.algorithms.rft import RFT, RestartingLearner, annealing_factor
from components.policy.rollout import Rollout


def make_rollout(number, *, reward=1.0, task=0, idle=(False, False)):
    """Return a rollout with replies of two tokens and of one; each `number` gives another text."""
    episode = make_episode(make_task(task), ("look", "s"), ("go", "t"), won=reward > 0)
    segments = [Segment([1, number], [False] * 2), Segment([5, 6], [True] * 2), Segment([7], [True])]
    return Rollout(episode, Example(segments), [-0.5] * 3, idle=list(idle))


def make_rft(**settings):
    return RFT(RFTConfig(**settings))


def kept_numbers(algorithm):
    return {
        name: [rollout.example.segments[0].tokens[1] for rollout in successes.values()]
        for name, successes in algorithm.kept.items()
    }


def test_different_successes_are_kept_and_the_oldest_of_a_task_are_dropped():
    rft = make_rft(max_successes=2)
    policy = None
    rft.training_samples(
        [[make_rollout(1), make_rollout(1), make_rollout(2, reward=0.0)], [make_rollout(9, task=1)], []],
        policy,
    )
    assert kept_numbers(rft) == {"t0": [1], "t1": [9]}
    assert len(rft.training_samples([[make_rollout(3)], []], policy)) == 3
    rft.training_samples([[make_rollout(1)], [make_rollout(4)]], policy)
    assert kept_numbers(rft) == {"t0": [1, 4], "t1": [9]}, "1 occurred again, so 3 is the oldest"


def test_an_idle_reply_has_no_loss():
    (sample,) = make_rft().training_samples([[make_rollout(1, idle=(True, False))]], None)
    assert sample.targets == {"weight": [0.0, 0.0, 1.0]}


def test_the_loss_is_the_mean_over_tokens_without_idle_replies():
    rft = make_rft()
    samples = rft.training_samples([[make_rollout(1, idle=(True, False)), make_rollout(2)]], None)
    weights = [
        weight
        for sample, weight in zip(samples, rft.token_weights(samples), strict=True)
        for _ in range(sample.token_count)
    ]
    logprobs = torch.tensor([-1.0, -1.0, -2.0, -3.0, -1.0, -4.0])
    weight = torch.tensor([value for sample in samples for value in sample.targets["weight"]])
    loss, figures = rft.loss(
        LossInputs(logprobs, logprobs, None, {"weight": weight}, torch.tensor(weights), [3, 3], 6)
    )
    assert loss.item() == pytest.approx((2 + 3 + 1 + 4) / 6) and figures == {}


def test_kept_successes_are_restored_from_a_state():
    rft, other = make_rft(), make_rft()
    rft.training_samples(
        [[make_rollout(1), make_rollout(2, idle=(False, True))], [make_rollout(3, task=1)]], None
    )
    other.load_state_dict(rft.state_dict())
    assert kept_numbers(other) == kept_numbers(rft)
    assert [sample.targets for sample in other.training_samples([], None)] == [
        sample.targets for sample in rft.training_samples([], None)
    ]


@pytest.fixture
def small_steps(monkeypatch):
    """Optimiser steps of 64 tokens."""
    monkeypatch.setattr(rft_module, "STEP_TOKENS", 64)


def make_learner(**settings):
    policy = Policy(make_model(), VOCABULARY)
    options = RFTConfig(**settings)
    return RestartingLearner(policy, RFT(options), RLConfig(algorithm=options, demonstration_weight=0.0))


def test_every_iteration_starts_from_the_initial_weights(small_steps):
    learner = make_learner(epochs=2)
    first = {name: weight.clone() for name, weight in learner.trained_weights().items()}
    samples = make_rft().training_samples([[make_rollout(number) for number in range(1, 5)]], None)
    learner.learn(samples, 3, 1e-2, on_policy=False)
    once = {name: weight.clone() for name, weight in learner.trained_weights().items()}
    assert any(not torch.equal(first[name], once[name]) for name in first)
    learner.learn(samples, 3, 1e-2, on_policy=False)
    assert all(torch.equal(once[name], weight) for name, weight in learner.trained_weights().items())


def test_the_number_of_steps_follows_from_the_number_of_tokens(small_steps):
    rollouts = [make_rollout(number) for number in range(1, 41)]
    samples = make_rft(max_successes=99).training_samples([rollouts], None)
    batches = make_learner().split(samples)
    assert [sum(sample.length for sample in batch) for batch in batches] == [65, 65, 65, 5]
    assert sum(map(len, batches)) == 40


def test_the_learning_rate_warms_up_and_decays_to_zero():
    assert (
        annealing_factor(0.025) == pytest.approx(0.5)
        and annealing_factor(0.05) == 1.0
        and annealing_factor(1.0) == pytest.approx(0.0)
    )
