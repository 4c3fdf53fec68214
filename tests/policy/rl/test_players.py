"""Players with several processes: order, reproducibility, new transitions, and failures.

The world is written by hand, because a player must not depend on it. The flows run players with dreams.
"""

import os
import signal
import threading
import time

import pytest
from builders import make_task, make_transition
from policy_worlds import CountingDream, policy, texts

from components.errors import TrainingError
from components.policy.rl.players.player import LocalDreamPlayer
from components.policy.rl.players.rollout_workers import ProcessPoolPlayer

TASKS = [make_task(n, instruction=f"put a mug in desk {n}") for n in range(5)]
OPTIONS = {"max_steps": 2, "temperature": 1.0, "seed": 3}


@pytest.fixture(scope="module")
def processes():
    with ProcessPoolPlayer(2, CountingDream) as players:
        yield players


def test_rollouts_are_in_order_and_reproducible(processes):
    before = processes.interactions
    player = policy()
    first = processes.play(player, TASKS, **OPTIONS).rollouts
    assert [r.trajectory.task for r in first] == TASKS
    assert (
        processes.interactions - before == 10
        and processes.tokens >= 40
        and player.tokens == sum(len(r.logprobs) for r in first)
    )
    assert texts(first) == texts(processes.play(policy(), TASKS, **OPTIONS).rollouts)
    assert texts(first) != texts(processes.play(policy(), TASKS, **{**OPTIONS, "seed": 4}).rollouts)
    assert len({r.trajectory.steps[0].episode_id for r in first}) == len(TASKS), "episode ids must differ"


def test_one_dream_in_this_process_plays_what_one_process_plays():
    local = LocalDreamPlayer(CountingDream())
    with ProcessPoolPlayer(1, CountingDream) as pool:
        for player in (local, pool):
            player.remember([make_transition()])
        first, second = (player.play(policy(), TASKS, **OPTIONS).rollouts for player in (local, pool))
        assert texts(first) == texts(second)
        assert [r.logprobs for r in first] == [r.logprobs for r in second]
        assert (local.interactions, local.tokens) == (pool.interactions, pool.tokens) == (10, 20)
        assert local.rejected == pool.rejected


def test_every_world_receives_new_transitions(processes):
    processes.remember([make_transition()])
    rollouts = processes.play(policy(), TASKS, **OPTIONS).rollouts
    counts = {r.trajectory.steps[0].next_state.split(",")[0] for r in rollouts}
    assert len(counts) == 1 and counts != {"I know 0 things"}


def test_fewer_tasks_than_processes_are_played(processes):
    assert len(processes.play(policy(), TASKS[:1], **OPTIONS).rollouts) == 1


def test_an_exception_in_a_worker_is_reported_and_the_workers_remain_usable(processes):
    with pytest.raises(TrainingError, match="the world is gone"):
        processes.play(policy(), [make_task(9, instruction="fail")], **OPTIONS)
    assert len(processes.play(policy(), TASKS, **OPTIONS).rollouts) == 5


def test_a_killed_worker_is_an_error_with_the_next_step():
    with ProcessPoolPlayer(1, CountingDream) as players:
        players.play(policy(), TASKS[:1], **OPTIONS)
        os.kill(next(iter(players._pools[0]._processes)), signal.SIGKILL)
        with pytest.raises(TrainingError, match="same command again"):
            players.play(policy(), TASKS[:1], **OPTIONS)


def transitions_known_in(batch):
    """The numbers of transitions that the worlds of a batch knew."""
    states = [step.next_state for rollout in batch.rollouts for step in rollout.trajectory.steps]
    return {int(state.split()[2]) for state in states}


@pytest.fixture(params=["one dream", "processes"])
def player(request):
    """A player in this process and one with several, for what both do alike."""
    if request.param == "processes":
        yield request.getfixturevalue("processes")
    else:
        dream = LocalDreamPlayer(CountingDream())
        yield dream
        dream.close_begun()


def test_batches_and_what_is_remembered_keep_the_order_in_which_they_were_asked(player):
    (before,) = transitions_known_in(player.play(policy(), TASKS, **OPTIONS))
    played = player.interactions
    asked = [player.begin(policy(), TASKS, **OPTIONS)]
    player.remember([make_transition()])
    asked.append(player.begin(policy(), TASKS, **OPTIONS))
    player.remember([make_transition()] * 2)
    asked.append(player.begin(policy(), TASKS, **OPTIONS))
    counts = [player.interactions - played]
    batches = []
    for take in asked:
        batches.append(take())
        counts.append(player.interactions - played)
    assert [transitions_known_in(batch) for batch in batches] == [{before}, {before + 1}, {before + 3}]
    assert counts == [0, 10, 20, 30], "a batch is counted when it is taken"
    player.remember([make_transition()])
    assert transitions_known_in(player.play(policy(), TASKS, **OPTIONS)) == {before + 4}


def test_what_cannot_be_remembered_is_an_error_of_the_next_batch(player):
    first = player.begin(policy(), TASKS, **OPTIONS)
    player.remember([None])
    second = player.begin(policy(), TASKS, **OPTIONS)
    assert len(first().rollouts) == len(TASKS)
    with pytest.raises((RuntimeError, TrainingError), match="no transition"):
        second()
    player.close_begun()
    assert len(player.play(policy(), TASKS, **OPTIONS).rollouts) == len(TASKS)


def test_a_process_that_has_played_its_share_goes_on_with_the_next_batch(processes, tmp_path):
    """The first process makes the file that the second one still waits for in the batch before."""
    file = tmp_path / "made"
    waits = [make_task(0), make_task(1, instruction=f"await {file}")]
    makes = [make_task(2, instruction=f"make {file}"), make_task(3)]
    first, second = (processes.begin(policy(), tasks, **OPTIONS) for tasks in (waits, makes))
    assert [rollout.trajectory.task for rollout in first().rollouts] == waits
    assert [rollout.trajectory.task for rollout in second().rollouts] == makes


def test_batches_that_nobody_takes_are_left_out(processes, tmp_path):
    before = processes.interactions
    begun, held, never = (tmp_path / name for name in ("begun", "held", "never"))
    processes.begin(policy(), [make_task(0, instruction=f"make {begun}")], **OPTIONS)
    processes.begin(policy(), [make_task(0, instruction=f"await {held}")], **OPTIONS)
    processes.begin(policy(), [make_task(1, instruction=f"make {never}")], **OPTIONS)
    while not begun.exists():
        time.sleep(0.01)
    threading.Timer(0.5, held.touch).start()
    processes.close_begun()
    assert len(processes.play(policy(), TASKS, **OPTIONS).rollouts) == 5, "the processes go on"
    assert processes.interactions - before == 10 and not never.exists()
