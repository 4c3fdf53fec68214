"""The learnt reward model: what it reads, and that it tells successes from failures it has not seen."""

from __future__ import annotations

import logging
import math
from pathlib import Path
from types import SimpleNamespace

import pytest
from builders import VOCABULARY, make_episode, make_model, make_task, with_unknown_outcome

from components.config import load_config
from components.errors import DataError
from components.language.training.examples import Example
from components.policy.policy import Policy
from components.policy.rl.algorithms.choose import make_algorithm
from components.policy.rl.rewards.outcome_rewards import HybridRewards
from components.policy.rl.rewards.reward_model import HELD_OUT_TASKS, RewardModel, split_by_task
from components.policy.rollout import Rollout
from flows.run.training import rl_training


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


@pytest.fixture
def long_training(monkeypatch):
    monkeypatch.setattr("components.policy.rl.rewards.reward_model.EPOCHS", 12)
    monkeypatch.setattr("components.policy.rl.rewards.reward_model.STEP_TOKENS", 256)
    monkeypatch.setattr("components.policy.rl.rewards.reward_model.LEARNING_RATE", 3e-3)


@pytest.mark.usefixtures("long_training")
def test_it_tells_new_successes_from_new_failures():
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


LOGS = [episode(number, won) for number in range(10) for won in (True, False)]


@pytest.mark.usefixtures("long_training")
def test_its_auc_is_that_on_episodes_of_tasks_that_it_was_not_trained_on(monkeypatch):
    model = RewardModel(Policy(make_model(hidden=32), VOCABULARY))
    trained = []
    learn = model.learn
    monkeypatch.setattr(
        model, "learn", lambda episodes, seed: trained.extend(episodes) or learn(episodes, seed)
    )
    record = model.learn_from_logs(LOGS, seed=0)
    held_out = [one for one in LOGS if one not in trained]
    assert record.held_out == len(held_out) == 2 * (10 // HELD_OUT_TASKS)
    assert not {one.task.id for one in held_out} & {one.task.id for one in trained}
    pairs = [(won, lost) for won in held_out for lost in held_out if won.success and not lost.success]
    assert record.auc == sum(model.score(won) > model.score(lost) for won, lost in pairs) / len(pairs) > 0.9
    assert split_by_task(LOGS, 0) == (trained, held_out) != split_by_task(LOGS, 1)


def test_no_episode_is_held_out_where_the_others_would_have_one_outcome():
    few = [episode(0, True), *(episode(number, False) for number in range(1, 5))]
    splits = [split_by_task(few, seed) for seed in range(40)]
    assert (few, []) in splits and all(any(one.success for one in trained) for trained, _ in splits)


@pytest.mark.parametrize(("won", "said"), [(True, "succeeded"), (False, "failed")])
def test_logs_of_one_outcome_are_refused(won, said):
    model = RewardModel(Policy(make_model(), VOCABULARY))
    words = f"All 3 logged episodes that reward: hero_learnt would learn from {said}.*cloning.behaviours"
    with pytest.raises(DataError, match=words):
        model.learn_from_logs([episode(number, won) for number in range(3)], seed=0)


def test_an_unknown_outcome_is_not_learnt_as_a_failure(monkeypatch):
    model = RewardModel(Policy(make_model(), VOCABULARY))
    trained = []
    monkeypatch.setattr(model, "learn", lambda episodes, seed: trained.extend(episodes) or [0.0])
    unknown = [with_unknown_outcome(episode(number, False)) for number in range(10)]
    record = model.learn_from_logs([*LOGS, *unknown], seed=0)
    assert len(trained) + record.held_out == len(LOGS)
    assert all(one.outcome is not None for one in trained)
    with pytest.raises(DataError, match="All 1 logged .* succeeded, and 10 have no known outcome"):
        model.learn_from_logs([episode(0, True), *unknown], seed=0)


@pytest.mark.usefixtures("long_training")
def test_the_stage_logs_how_well_it_tells_held_out_episodes_apart(monkeypatch, caplog):
    log = logging.getLogger("reward")
    monkeypatch.setattr(rl_training, "get_run_logger", lambda: log)
    monkeypatch.setattr(rl_training, "cloned_behaviours", lambda run, train: LOGS)
    config = load_config(None, ["rl.algorithm.reward=hero_learnt", "rl.algorithm.scale_rewards=false"])
    run = SimpleNamespace(config=config, round_seed=0)
    policy = Policy(make_model(hidden=32), VOCABULARY)
    with caplog.at_level(logging.INFO, logger="reward"):
        score, values = rl_training._progress(run, policy, config.rl.dream, Path())
    assert score(episode(20, True)) > score(episode(20, False))
    assert values["reward_model/auc"] > 0.9
    assert make_algorithm(config.rl.dream, policy, score, values).report() == values, "in each iteration"
    assert f"AUC {values['reward_model/auc']:.3f} on 4 held-out episodes" in caplog.text


def test_hero_ranks_failures_by_it():
    scores = {"put a mug in desk 1": 0.1, "put a mug in desk 2": 0.4}
    rewards = HybridRewards(lambda one: scores[one.task.instruction])
    group = [Rollout(episode(number, False), Example([])) for number in (1, 2)]
    low, high = rewards.returns(group)[0]
    assert low < high < 1
