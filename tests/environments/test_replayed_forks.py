"""Alternatives in a world that cannot fork, tried in a second one behind the same actions."""

from __future__ import annotations

from dataclasses import replace

import pytest

from components.environments.protocol import Forkable
from components.environments.replayed_forks import OTHER_STATE, ReplayedForks, forkable
from components.policy.early_experience import explore


class Plain:
    """The real engine without forks, perhaps without a list of actions, perhaps for few rows."""

    def __init__(self, world, lists=True, most_rows=None):
        self.world, self.lists, self.most_rows = world, lists, most_rows
        self.closed = False
        self.start = world.interactions

    @property
    def interactions(self):
        return self.world.interactions - self.start

    @property
    def admissible(self):
        return self.world.admissible if self.lists else [() for _ in self.tasks]

    def reset(self, tasks):
        assert self.most_rows is None or len(tasks) <= self.most_rows
        self.tasks = tasks
        return self.world.reset(tasks)

    def step(self, actions):
        steps = self.world.step(actions)
        return steps if self.lists else [step and replace(step, info={}) for step in steps]

    def close(self):
        self.closed = True


@pytest.fixture(scope="module")
def second(adapter):
    environment = adapter.open()
    yield environment
    environment.close()


@pytest.fixture(scope="module")
def experts(played):
    return played["expert"][:3]


@pytest.mark.parametrize("most_rows", [None, 2])
def test_replays_give_what_forks_give_and_count_each_step(world, second, experts, most_rows):
    forked = explore(world, experts, 2, seed=0)
    replayed = ReplayedForks(Plain(world), Plain(second, most_rows=most_rows), {})
    assert explore(replayed, experts, 2, seed=0) == forked
    lengths = [len(episode.steps) for episode in experts]
    tries = sum(2 * sum(range(1, length + 1)) for length in lengths)
    assert replayed.interactions == sum(lengths) + tries


def test_without_a_list_of_actions_the_recorded_ones_of_the_task_are_tried(world, second, experts):
    known = {episode.task.id: ["look", "inventory"] for episode in experts}
    explored = explore(ReplayedForks(Plain(world, lists=False), Plain(second), known), experts, 3, seed=0)
    tried = {action for entry in explored for step in entry.alternatives for action, _ in step}
    assert tried == {"look", "inventory"}


def test_a_world_that_does_not_repeat_itself_gives_no_alternative(world, second, experts):
    class Other(Plain):
        def reset(self, tasks):
            return [f"{state} A fly." for state in super().reset(tasks)]

    forks = ReplayedForks(Plain(world), Other(second), {})
    forks.reset([experts[0].task])
    ((answer,),) = forks.probe([["look"]])
    assert answer.info["failed"] == OTHER_STATE


def test_a_world_that_forks_is_used_as_it_is_and_another_is_opened_twice(world, second):
    assert forkable(lambda: world, {}) is world
    opened = [Plain(world), Plain(second)]
    forks = forkable(iter(opened).__next__, {})
    assert isinstance(forks, ReplayedForks) and isinstance(forks, Forkable)
    forks.close()
    assert all(one.closed for one in opened)


def test_a_second_world_that_cannot_be_opened_leaves_none_open(world):
    first = Plain(world)
    opened = iter([first])
    with pytest.raises(StopIteration):
        forkable(opened.__next__, {})
    assert first.closed
