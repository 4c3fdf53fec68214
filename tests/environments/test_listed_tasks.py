"""Wrong answers of a user's adapters and worlds are errors before any data is recorded."""

from __future__ import annotations

import json
import random
from dataclasses import replace

import numpy as np
import pytest
from builders import make_episode, make_task

from components.config import load_config
from components.environments.contract.adapter_contract import check
from components.environments.contract.subject import Subject
from components.environments.contract.task_promises import _streams
from components.environments.protocol import Step
from components.environments.template import BoxWorld, TemplateAdapter
from components.environments.text_world.listed_tasks import listed_tasks
from components.environments.text_world.plain_adapter import build_task
from components.environments.vectorized import RowsEnvironment
from components.errors import EnvironmentFailure
from components.trajectories.recording import collect, plan

CONFIG = load_config(None, ["environment.name=own", "environment.own.adapter=x:X"])


def adapter_of(tasks):
    made = TemplateAdapter(CONFIG.environment)
    whole = made.tasks
    made.tasks = lambda split, count, seed: tasks(whole, split, count, seed)
    return made


def test_a_generator_of_tasks_is_accepted():
    adapter = adapter_of(lambda whole, *arguments: (task for task in whole(*arguments)))
    assert listed_tasks(adapter, "own", "train", 5, 0) == TemplateAdapter(CONFIG.environment).tasks(
        "train", 5, 0
    )


@pytest.mark.parametrize(
    ("tasks", "words"),
    [
        (
            lambda whole, *arguments: [replace(task, id="own/one") for task in whole(*arguments)],
            "5 tasks with 1 different ids. Expected 5",
        ),
        (lambda whole, *arguments: whole(*arguments)[1:], "4 tasks with 4 different ids. Expected 5"),
        (
            lambda whole, split, count, seed: whole(split, count + 2, seed),
            "7 tasks with 7 different ids. Expected 5",
        ),
        (
            lambda whole, *arguments: [replace(task, split="test") for task in whole(*arguments)],
            "the split 'test'. Expected 'own' and 'train'",
        ),
        (
            lambda whole, *arguments: [replace(task, environment="box") for task in whole(*arguments)],
            "'box' and .* Expected 'own'",
        ),
        (
            lambda whole, *arguments: [replace(task, spec={"a": 1}) for task in whole(*arguments)],
            "spec is {'a': 1}. Expected text",
        ),
        (
            lambda whole, *arguments: [replace(task, initial_state=" ") for task in whole(*arguments)],
            "initial_state is ' '. Expected text",
        ),
        (lambda whole, *arguments: [vars(task) for task in whole(*arguments)], "Expected tasks"),
        (lambda *_: None, "raised TypeError: 'NoneType' object is not iterable"),
        (lambda *_: {}["none"], "raised KeyError: 'none'"),
    ],
)
def test_wrong_task_lists_are_refused(tasks, words):
    with pytest.raises(
        EnvironmentFailure, match=rf"The adapter's tasks\('train', 5, 0\) (gave|raised) .*{words}|{words}"
    ):
        listed_tasks(adapter_of(tasks), "own", "train", 5, 0)


def collect_with(change, behaviour=None):
    class World(BoxWorld):
        def act(self, action):
            return change(super().act(action))

    adapter = TemplateAdapter(CONFIG.environment)
    adapter.open = lambda budget=None, **_: RowsEnvironment(World, budget)
    if behaviour:
        adapter.behaviour = lambda *_: behaviour
    return collect(adapter, plan(adapter.tasks("train", 2, 0), {"expert": 1}, 0), 30)


@pytest.mark.parametrize("kind", [int, bool, float, np.float32, np.bool_])
def test_rewards_and_ends_become_plain_values(kind):
    played = collect_with(lambda step: replace(step, reward=kind(step.reward), done=kind(step.done)))
    assert [[(type(step.reward), type(step.done)) for step in episode.steps] for episode in played] == [
        [(float, bool)] * len(episode.steps) for episode in played
    ]
    assert all(episode.success for episode in played)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (
            lambda step: replace(step, reward=2 * step.reward),
            "reward=2.0, done=True. Expected the reward 1.0",
        ),
        (lambda step: replace(step, reward=step.reward / 2), "reward=0.5, done=True"),
        (lambda step: replace(step, reward=-1.0), "reward=-1.0, done=False"),
        (lambda step: replace(step, reward=1.0), "reward=1.0, done=False"),
        (lambda step: replace(step, reward=float("nan")), "reward=nan"),
        (lambda step: replace(step, reward=str(step.reward)), "reward='0.0'"),
        (lambda step: replace(step, done=None), "done=None. Expected true or false"),
        (lambda step: replace(step, done="no"), "done='no'"),
        (lambda step: replace(step, state={"room": 1}), "answered {'room': 1}. Expected a state of words"),
        (lambda step: (step.state, step.reward, step.done), "Expected a Step"),
        (lambda step: exit(3), "SystemExit: 3"),  # noqa: PLR1722
    ],
)
def test_an_invalid_answer_is_a_failure_of_the_world(change, words):
    with pytest.raises(EnvironmentFailure, match=words):
        collect_with(change)


@pytest.mark.parametrize("answer", [None, "open box 1", ("", 3), ("", "open box 1", 2)])
def test_a_behaviour_of_another_form_is_named(answer):
    with pytest.raises(
        EnvironmentFailure, match="The behaviour expert gave .*Expected a thought and an action"
    ):
        collect_with(lambda step: step, lambda *_: answer)


class Numbered(TemplateAdapter):
    """Tasks whose states hold the number of their episode."""

    same = True

    def tasks(self, split, count, seed):
        numbers = random.Random(f"{split}/{seed}").sample(
            range(0 if split == "train" else 1, 20_000, 2), count
        )
        place = (lambda number: 3) if self.same else (lambda number: 1 + number // 2 % 7)
        return [
            build_task(
                "own",
                str(n),
                split,
                "put the key on the table",
                f"Episode {n}. Boxes: 7.",
                n=n,
                place=place(n),
            )
            for n in numbers
        ]

    def open(self, budget=None, **_):
        return RowsEnvironment(NumberedWorld, budget)

    def behaviour(self, name, task, seed):
        return lambda played, admissible: ("", f"open box {len(played.steps) + 1}")


class NumberedWorld:
    admissible = ()

    def begin(self, task):
        self.spec = json.loads(task.spec)
        return task.initial_state

    def act(self, action):
        won = action == f"open box {self.spec['place']}"
        return Step(f"Episode {self.spec['n']}. {'The key' if won else 'Nothing'}.", float(won), won)

    def close(self): ...


def finding_of(adapter):
    found = []
    check(CONFIG, adapter, found.append)
    return next(one for one in found if one.promise.startswith("Training tasks are different"))


def test_tasks_that_differ_only_in_an_episode_count_are_a_doubt():
    found = finding_of(Numbered(CONFIG.environment))
    assert (
        found.state == "doubt"
        and "24 tasks are 1 different" in found.found
        and "leave it out of the state" in found.next_step
    )


def test_tasks_with_other_rewards_are_different(monkeypatch):
    monkeypatch.setattr(Numbered, "same", False)
    assert "are 7 different" in finding_of(Numbered(CONFIG.environment)).found
    assert "Without the numbers" not in finding_of(TemplateAdapter(CONFIG.environment)).found


class HiddenDoor:
    """A world that shows the same to every task, until its own door is opened."""

    interactions = 0

    def reset(self, tasks):
        self.doors = [task.spec for task in tasks]
        return ["Three doors."] * len(tasks)

    def step(self, actions):
        won = [action == f"open {door}" for action, door in zip(actions, self.doors, strict=True)]
        return [Step("A prize." if right else "Closed.", float(right), right) for right in won]


def test_a_draw_that_only_a_winning_action_reveals_is_seen():
    tasks = [replace(make_task(number), spec=str(number)) for number in range(3)]
    subject = Subject(TemplateAdapter(CONFIG.environment), HiddenDoor(), tasks, CONFIG)
    lost = make_episode(tasks[0], *[("look", "Closed.")] * 5)
    subject.played["random"] = [lost]
    assert len(_streams(subject, tasks)) == 1, "the longest episode shows nothing"
    won = [make_episode(task, (f"open {task.spec}", "A prize."), won=True) for task in tasks[:2]]
    subject.played["random"] = [lost, *won]
    assert len(_streams(subject, tasks)) == 3
