"""Players with several processes: order, reproducibility, new transitions, and failures.

The world is written by hand, because a player must not depend on it. The flows run players with dreams.
"""

import os
import signal

import pytest
from builders import make_task, make_transition
from policy_worlds import CountingDream, policy, texts

from components.errors import TrainingError
from components.policy.rl.players.rollout_workers import LocalDreamPlayer, ProcessPoolPlayer

TASKS = [make_task(n, instruction=f"put a mug in desk {n}") for n in range(5)]
OPTIONS = {"max_steps": 2, "temperature": 1.0, "seed": 3}


@pytest.fixture(scope="module")
def processes():
    with ProcessPoolPlayer(2, CountingDream) as players:
        yield players


def test_rollouts_are_in_order_and_reproducible(processes):
    before = processes.interactions
    player = policy()
    first = processes.play(player, TASKS, **OPTIONS)
    assert [r.trajectory.task for r in first] == TASKS
    assert (
        processes.interactions - before == 10
        and processes.tokens >= 40
        and player.tokens == sum(len(r.logprobs) for r in first)
    )
    assert texts(first) == texts(processes.play(policy(), TASKS, **OPTIONS))
    assert texts(first) != texts(processes.play(policy(), TASKS, **{**OPTIONS, "seed": 4}))
    assert len({r.trajectory.steps[0].episode_id for r in first}) == len(TASKS), "episode ids must differ"


def test_one_dream_in_this_process_plays_what_one_process_plays():
    local = LocalDreamPlayer(CountingDream())
    with ProcessPoolPlayer(1, CountingDream) as pool:
        for player in (local, pool):
            player.remember([make_transition()])
        first, second = (player.play(policy(), TASKS, **OPTIONS) for player in (local, pool))
        assert texts(first) == texts(second)
        assert [r.logprobs for r in first] == [r.logprobs for r in second]
        assert (local.interactions, local.tokens) == (pool.interactions, pool.tokens) == (10, 20)
        assert local.rejected == pool.rejected


def test_every_world_receives_new_transitions(processes):
    processes.remember([make_transition()])
    rollouts = processes.play(policy(), TASKS, **OPTIONS)
    counts = {r.trajectory.steps[0].next_state.split(",")[0] for r in rollouts}
    assert len(counts) == 1 and counts != {"I know 0 things"}


def test_fewer_tasks_than_processes_are_played(processes):
    assert len(processes.play(policy(), TASKS[:1], **OPTIONS)) == 1


def test_an_exception_in_a_worker_is_reported_and_the_workers_remain_usable(processes):
    with pytest.raises(TrainingError, match="the world is gone"):
        processes.play(policy(), [make_task(9, instruction="fail")], **OPTIONS)
    assert len(processes.play(policy(), TASKS, **OPTIONS)) == 5


def test_a_killed_worker_is_an_error_with_the_next_step():
    with ProcessPoolPlayer(1, CountingDream) as players:
        players.play(policy(), TASKS[:1], **OPTIONS)
        os.kill(next(iter(players._pools[0]._processes)), signal.SIGKILL)
        with pytest.raises(TrainingError, match="same command again"):
            players.play(policy(), TASKS[:1], **OPTIONS)
