"""Recorded episodes as rollouts, and DPO that learns from pairs of them."""

from __future__ import annotations

import pytest
from builders import VOCABULARY, make_episode, make_model, make_task, with_unknown_outcome
from loop_builders import make_config

from components.config import RLConfig
from components.errors import TrainingError
from components.policy.policy import Policy
from components.policy.rl.algorithms.choose import make_algorithm
from components.policy.rl.loop import Loop
from components.policy.rl.players.logged_player import NO_MORE, LoggedPlayer, as_rollout
from components.policy.rl.task_source import EvenTasks
from flows.stages.logged_rl import comparable_episodes

TASK, OTHER = make_task(0), make_task(1)
EPISODES = [
    make_episode(TASK, ("go", "At desk 1: mug 1."), ("take", "Took mug 1."), won=True, episode="won"),
    make_episode(TASK, ("wait", TASK.initial_state), ("go", "At desk 1: mug 1."), episode="lost"),
]


def play(player, tasks, seed=0):
    policy = Policy(make_model(), VOCABULARY)
    batch = player.play(policy, tasks, max_steps=9, temperature=1.0, seed=seed)
    assert batch.interactions == 0, "nothing is played"
    return batch.rollouts


def test_a_recorded_episode_as_a_rollout():
    policy = Policy(make_model(), VOCABULARY)
    won, lost = (as_rollout(policy, episode) for episode in EPISODES)
    assert (won.reward, lost.reward) == (1.0, 0.0)
    assert won.trajectory == EPISODES[0] and lost.idle == [True, False]
    assert len(won.logprobs) == won.token_count > 0
    assert won.reply_lengths == [
        len(policy.text.reply(step.thought, step.action)) for step in EPISODES[0].steps
    ]


def test_each_episode_of_a_task_is_returned_once_and_then_none():
    player = LoggedPlayer({TASK.id: EPISODES})
    rollouts = play(player, [TASK] * 3 + [OTHER])
    assert {rollout.trajectory.steps[0].episode_id for rollout in rollouts[:2]} == {"won", "lost"}
    assert [rollout.failure for rollout in rollouts] == ["", "", NO_MORE, NO_MORE]
    orders = {
        tuple(r.trajectory.steps[0].episode_id for r in play(player, [TASK] * 2, seed)) for seed in range(9)
    }
    assert len(orders) == 2, "the seed decides the order"


def test_dpo_learns_to_prefer_the_logged_success():
    config = make_config({"algorithm": "dpo", "sync_every": 0, "iterations": 6, "tasks": 1})
    assert isinstance(config, RLConfig)
    policy = Policy(make_model(), VOCABULARY)
    loop = Loop(
        policy,
        LoggedPlayer({TASK.id: EPISODES}),
        EvenTasks([TASK]),
        make_algorithm(config, policy),
        config,
        max_steps=9,
        seed=0,
    )
    series = loop.run().series
    assert series["interactions"] == [0.0] * 6
    assert series["margin"][-1] > series["margin"][0] >= 0 and series["preferred"][-1] == 1.0
    assert series["broken_episodes"] == [0.5] * 6, "four places and two recorded episodes"


def test_only_tasks_with_both_outcomes_are_compared():
    lone = make_episode(OTHER, ("go", "s"), won=True)
    assert comparable_episodes([*EPISODES, lone]) == {TASK.id: EPISODES}
    with pytest.raises(TrainingError, match="None of the 1 recorded tasks with a known outcome has both"):
        comparable_episodes([lone])


def test_an_episode_of_an_unknown_outcome_is_in_no_pair():
    won, lost = EPISODES
    assert comparable_episodes([*EPISODES, with_unknown_outcome(lost)]) == {TASK.id: EPISODES}
    with pytest.raises(TrainingError, match="both a success and a failure"):
        comparable_episodes([won, with_unknown_outcome(lost)])
