"""GAE and PPO's loss against numbers computed by hand, and the state of the value head."""

from __future__ import annotations

import pytest
import torch
from builders import VOCABULARY, make_episode, make_model, make_task

from components.config import RLConfig
from components.config.algorithm_config import PPOConfig
from components.language.training.examples import Example, Segment
from components.policy.policy import Policy
from components.policy.rl.algorithms.algorithm import LossInputs
from components.policy.rl.algorithms.choose import make_algorithm
from components.policy.rl.algorithms.ppo import generalised_advantages
from components.policy.rollout import Rollout


def config(**ppo):
    return RLConfig(num_generations=1, algorithm=PPOConfig(idle_penalty=0.0, discount=0.5, **ppo))


def rollout(won, *lengths, task=0):
    """Return an episode whose replies have `lengths` tokens."""
    episode = make_episode(make_task(task), *[("look", f"s{n}") for n in range(len(lengths))], won=won)
    replies = [Segment([20 + n] * length, [True] * length) for n, length in enumerate(lengths)]
    return Rollout(
        episode,
        Example([Segment([3, 4], [False, False]), *replies]),
        [-1.0] * sum(lengths),
        idle=[False] * len(lengths),
    )


def test_advantages_are_discounted_sums_of_temporal_difference_errors():
    assert generalised_advantages([0.0, 0.0, 1.0], [0.0] * 3, discount=1.0, gae_lambda=1.0) == [1.0, 1.0, 1.0]
    assert generalised_advantages([0.0, 0.0, 1.0], [0.0] * 3, discount=0.5, gae_lambda=0.5) == pytest.approx(
        [1 / 16, 1 / 4, 1.0]
    )
    # Temporal-difference errors: 0.5 * 0.6 - 0.2 = 0.1; 1 - 0.6 = 0.4
    assert generalised_advantages([0.0, 1.0], [0.2, 0.6], discount=0.5, gae_lambda=0.0) == pytest.approx(
        [0.1, 0.4]
    )
    assert generalised_advantages([0.0, 1.0], [0.2, 0.6], discount=0.5, gae_lambda=0.8) == pytest.approx(
        [0.1 + 0.4 * 0.4, 0.4]
    )


def test_all_tokens_of_a_reply_have_its_advantage_and_the_first_has_its_value():
    policy = Policy(make_model(), VOCABULARY)
    ppo = make_algorithm(config(gae_lambda=1.0), policy)
    won, lost = ppo.training_samples([[rollout(True, 2, 3)], [rollout(False, 1)], []], policy)
    # With V = 0 the advantages are the discounted returns 0.5, 1 and 0, normalised to mean 0 and deviation 1.
    mean, deviation = 0.5, (1 / 6) ** 0.5
    assert won.targets["advantage"] == pytest.approx(
        [(0.5 - mean) / deviation] * 2 + [(1 - mean) / deviation] * 3, abs=1e-4
    )
    assert lost.targets["advantage"] == pytest.approx([-mean / deviation], abs=1e-4)
    assert won.targets["return"] == [0.5, 0.5, 1.0, 1.0, 1.0] and won.targets["value"] == [0.0] * 5
    assert won.targets["first"] == [1.0, 0.0, 1.0, 0.0, 0.0] and won.targets["length"] == [
        2.0,
        2.0,
        3.0,
        3.0,
        3.0,
    ]


def test_the_value_loss_is_the_clipped_squared_error(monkeypatch):
    monkeypatch.setattr("components.policy.rl.algorithms.ppo.VALUE_WEIGHT", 2.0)
    monkeypatch.setattr("components.policy.rl.algorithms.ppo.VALUE_CLIP", 0.1)
    ppo = make_algorithm(config(), Policy(make_model(), VOCABULARY))
    torch.nn.init.constant_(ppo.head.bias, 0.5)
    column = {
        "advantage": [0.0] * 3,
        "value": [0.2] * 3,
        "return": [1.0, 1.0, 0.4],
        "first": [1.0, 0.0, 1.0],
        "length": [2.0, 2.0, 1.0],
    }
    targets = {name: torch.tensor(values) for name, values in column.items()}
    logprobs = torch.full((3,), -1.0)
    loss, figures = ppo.loss(
        LossInputs(logprobs, logprobs, torch.zeros(3, 16), targets, torch.full((3,), 1 / 3), [3], 3)
    )
    # V = 0.5 is clipped to 0.3: the larger of (0.5 - 1)^2 and (0.3 - 1)^2 counts for two tokens. Then the
    # larger of 0.1^2 and 0.1^2 counts for one.
    error = 0.5 * (0.7**2 * 2 + 0.1**2) / 3
    assert figures["value_loss"] == pytest.approx(error, abs=1e-6) and loss.item() == pytest.approx(
        2 * error, abs=1e-6
    )
    assert figures["clip_share"] == 0.0


def test_the_value_head_is_trained_saved_and_restored():
    policy = Policy(make_model(), VOCABULARY)
    first, second = (make_algorithm(config(), policy) for _ in range(2))
    torch.nn.init.constant_(first.head.bias, 0.25)
    second.load_state_dict(first.state_dict())
    assert [p.tolist() for p in second.parameters()] == [p.tolist() for p in first.parameters()] and len(
        first.parameters()
    ) == 2
