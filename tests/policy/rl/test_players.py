"""Several processes play one batch: in order, the same each time, all remembering, and a death is told.

The world is written by hand, since what a process does must not depend on it; the dream's is what the flows
run.
"""

import os
import signal

import pytest
from builders import VOCABULARY, make_model, make_task, make_transition

from components.environments.protocol import Step
from components.errors import TrainingError
from components.policy.policy import Policy
from components.policy.rl.rollout_workers import ProcessPoolPlayer

TASKS = [make_task(n, instruction=f"put a mug in desk {n}") for n in range(5)]
OPTIONS = {"max_steps": 2, "temperature": 1.0, "seed": 3}


class Counting:
    """Answers with how many transitions it remembers; fails on a task whose instruction says so."""

    def __init__(self):
        self.seed = self.interactions = self.tokens = self.known = 0

    def reset(self, tasks):
        if any(task.instruction == "fail" for task in tasks):
            raise RuntimeError("out of sheep")
        return [task.initial_state for task in tasks]

    def step(self, actions):
        self.interactions += sum(action is not None for action in actions)
        self.tokens += 10
        return [
            None if action is None else Step(f"I know {self.known} things, seed {self.seed}.", 0.0, False)
            for action in actions
        ]

    def remember(self, transitions):
        self.known += len(transitions)

    def close(self):
        pass


@pytest.fixture(scope="module")
def processes():
    with ProcessPoolPlayer(2, Counting) as players:
        yield players


def policy():
    return Policy(make_model(), VOCABULARY, max_new_tokens=4)


def texts(rollouts):
    return [
        [(step.episode_id, step.action, step.next_state) for step in rollout.trajectory.steps]
        for rollout in rollouts
    ]


def test_rollouts_come_in_order_and_are_the_same_each_time(processes):
    before, writer = processes.interactions, policy()
    first = processes.play(writer, TASKS, **OPTIONS)
    assert [r.trajectory.task for r in first] == TASKS
    assert (
        processes.interactions - before == 10
        and processes.tokens >= 40
        and writer.tokens == sum(len(r.logprobs) for r in first)
    )
    assert texts(first) == texts(processes.play(policy(), TASKS, **OPTIONS))
    assert texts(first) != texts(processes.play(policy(), TASKS, **{**OPTIONS, "seed": 4}))
    assert len({r.trajectory.steps[0].episode_id for r in first}) == len(TASKS), (
        "names of episodes must not collide"
    )


def test_every_world_remembers(processes):
    processes.remember([make_transition()])
    rollouts = processes.play(policy(), TASKS, **OPTIONS)
    known = {r.trajectory.steps[0].next_state.split(",")[0] for r in rollouts}
    assert len(known) == 1 and known != {"I know 0 things"}


def test_fewer_tasks_than_processes(processes):
    assert len(processes.play(policy(), TASKS[:1], **OPTIONS)) == 1


def test_a_failure_inside_is_told_and_survived(processes):
    with pytest.raises(TrainingError, match="out of sheep"):
        processes.play(policy(), [make_task(9, instruction="fail")], **OPTIONS)
    assert len(processes.play(policy(), TASKS, **OPTIONS)) == 5


def test_a_process_that_died_is_an_error_that_says_what_to_do():
    with ProcessPoolPlayer(1, Counting) as players:
        players.play(policy(), TASKS[:1], **OPTIONS)
        os.kill(next(iter(players._crew[0]._processes)), signal.SIGKILL)
        with pytest.raises(TrainingError, match="same command again"):
            players.play(policy(), TASKS[:1], **OPTIONS)
