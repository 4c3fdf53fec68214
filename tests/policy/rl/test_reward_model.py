"""The learnt reward model: what it reads, and that it tells successes from failures it has not seen."""

from __future__ import annotations

import math

import pytest
from builders import VOCABULARY, make_episode, make_model, make_task

from components.language.training.examples import Example
from components.policy.policy import Policy
from components.policy.rl.rewards.outcome_rewards import HybridRewards
from components.policy.rl.rewards.reward_model import RewardModel
from components.policy.rollout import Rollout


def episode(number, won):
    """Return an episode that succeeds exactly if it takes the mug."""
    action = "take mug 1" if won else "look"
    state = "You took mug 1." if won else "Nothing happens."
    task = make_task(number, instruction=f"put a mug in desk {number}")
    return make_episode(task, ("go to desk 1", "At desk 1: mug 1."), (action, state), won=won)


def test_before_training_every_state_is_as_likely_to_win_as_to_lose():
    model = RewardModel(Policy(make_model(), VOCABULARY))
    assert model.score(episode(0, True)) == model.score(episode(0, False)) == 0.5
    (loss,) = RewardModel(Policy(make_model(), VOCABULARY)).learn([episode(0, True)], seed=0)[:1]
    assert loss == pytest.approx(math.log(2), abs=1e-5), "the mean over the states, in nats"


def test_it_tells_new_successes_from_new_failures(monkeypatch):
    monkeypatch.setattr("components.policy.rl.rewards.reward_model.EPOCHS", 12)
    monkeypatch.setattr("components.policy.rl.rewards.reward_model.STEP_TOKENS", 256)
    monkeypatch.setattr("components.policy.rl.rewards.reward_model.LEARNING_RATE", 3e-3)
    policy = Policy(make_model(hidden=32), VOCABULARY)
    before = {name: weight.clone() for name, weight in policy.model.state_dict().items()}
    model = RewardModel(policy)
    logs = [episode(number, won) for number in range(8) for won in (True, False)]
    losses = model.learn(logs, seed=0)
    assert losses[-1] < 0.85 * losses[0], "the outcome is open before the last step"
    assert model.score(episode(20, True)) > 0.8 and model.score(episode(20, False)) < 0.2
    assert all(weight.equal(before[name]) for name, weight in policy.model.state_dict().items())
    again = RewardModel(policy)
    assert again.learn(logs, seed=0) == losses


def test_hero_ranks_failures_by_it():
    scores = {"put a mug in desk 1": 0.1, "put a mug in desk 2": 0.4}
    rewards = HybridRewards(lambda one: scores[one.task.instruction])
    group = [Rollout(episode(number, False), Example([])) for number in (1, 2)]
    low, high = rewards.returns(group)[0]
    assert low < high < 1
