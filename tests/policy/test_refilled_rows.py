"""A world with few rows begins the next episode as soon as one is over, and no earlier."""

import pytest
from builders import AGENT, VOCABULARY, make_model, make_task

from components.environments.protocol import Step
from components.environments.vectorized import RowsEnvironment
from components.errors import EnvironmentFailure
from components.language.training.examples import collate
from components.language.training.token_scores import token_logprobs
from components.policy.policy import Policy
from components.policy.rollout import play

LENGTHS = (1, 4, 2, 1, 3)
TASKS = [make_task(number, instruction=f"put a mug in desk {number}") for number in range(len(LENGTHS))]


class Countdown:
    """A world whose episode of task n has `LENGTHS[n]` steps."""

    broken = frozenset()

    def __init__(self):
        self.admissible = ("look",)
        self.left = 0

    def begin(self, task):
        number = TASKS.index(task)
        if number in self.broken:
            raise OSError("no such room")
        self.left = LENGTHS[number]
        return task.initial_state

    def act(self, action):
        self.left -= 1
        return Step(f"{self.left} to go.", float(self.left == 0), self.left == 0)

    def close(self):
        pass


class Watched(RowsEnvironment):
    """Counts the calls of `step`, which is what a slow world costs."""

    def __init__(self, **options):
        super().__init__(Countdown, **options)
        self.calls = 0

    def step(self, actions):
        self.calls += 1
        assert len(actions) <= 2
        return super().step(actions)


@pytest.fixture
def policy():
    return Policy(make_model(), VOCABULARY, max_new_tokens=6)


def test_the_next_episode_begins_in_the_row_of_the_last_one(policy):
    world = Watched(most_rows=2)
    rollouts = play(policy, world, TASKS, max_steps=10, temperature=1.0, seed=3)
    assert [len(rollout.trajectory.steps) for rollout in rollouts] == list(LENGTHS)
    assert [rollout.trajectory.task for rollout in rollouts] == TASKS
    assert all(rollout.trajectory.success for rollout in rollouts)
    assert world.interactions == sum(LENGTHS)
    assert world.calls == 7, "rows: 1 + 2 + 1 + 3 and 4; in batches of two 4 + 2 + 3 calls"
    ids = {step.episode_id for rollout in rollouts for step in rollout.trajectory.steps}
    assert len(ids) == len(TASKS)


def test_a_refilled_row_forgets_the_episode_before(policy):
    rollouts = play(policy, Watched(most_rows=2), TASKS, max_steps=10, temperature=1.0, seed=3)
    for rollout in rollouts:
        task = rollout.trajectory.task
        assert rollout.example.segments[0].tokens == AGENT.opening(task) + AGENT.ask(task)
        scores = token_logprobs(policy.model, collate([rollout.example], 0)).logprobs
        assert scores.tolist() == pytest.approx(rollout.logprobs, abs=1e-3)


def test_an_episode_at_the_limit_of_steps_makes_room_too(policy):
    world = Watched(most_rows=2)
    rollouts = play(policy, world, TASKS, max_steps=2, temperature=1.0, seed=3)
    assert [len(rollout.trajectory.steps) for rollout in rollouts] == [1, 2, 2, 1, 2]
    assert [rollout.trajectory.success for rollout in rollouts] == [True, False, True, True, False]
    assert world.calls == 5


def test_a_world_that_does_not_start_fails_its_own_episode_alone(policy, monkeypatch):
    monkeypatch.setattr(Countdown, "broken", frozenset({2}))
    world = Watched(most_rows=2)
    rollouts = play(policy, world, TASKS, max_steps=10, temperature=1.0, seed=3)
    assert [rollout.failure for rollout in rollouts] == ["", "", "OSError: no such room", "", ""]
    assert [len(rollout.trajectory.steps) for rollout in rollouts] == [1, 4, 0, 1, 3]


def test_a_refilled_row_that_begins_differently_ends_the_rollouts(policy, monkeypatch):
    monkeypatch.setattr(RowsEnvironment, "refill", lambda self, row, task: "Somewhere else.")
    with pytest.raises(EnvironmentFailure, match="begins with 'Somewhere else.'"):
        play(policy, Watched(most_rows=2), TASKS, max_steps=10, temperature=1.0, seed=3)
