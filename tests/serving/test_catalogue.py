"""The task that a client's reset names."""

from __future__ import annotations

import random

import pytest
from builders import make_task

from components.errors import ConfigError
from components.serving.task_choice import Catalogue, ResetRequest

TASKS = [make_task(number, instruction=f"put a mug in desk {number}") for number in range(5)]
CATALOGUE = Catalogue(
    "train", TASKS, lambda task: "" if task.instruction.startswith("put") else "follows no template"
)


def choose(rng=None, **options):
    return CATALOGUE.choose(ResetRequest.read(options), rng or random.Random(3))


def test_a_task_is_named_by_id_index_or_instruction():
    assert (
        choose(task_id="t3")
        == choose(index=3)
        == choose(instruction="put a mug in desk 3")
        == choose(index=3, task_id="t3")
        == TASKS[3]
    )
    assert choose(index=0, split="train") == TASKS[0]


def test_without_a_name_the_seed_draws_the_task():
    drawn = [choose(random.Random(seed)) for seed in range(40)]
    assert (
        drawn == [choose(random.Random(seed)) for seed in range(40)] and len({task.id for task in drawn}) == 5
    )


def test_another_instruction_in_a_room_is_a_new_task_of_that_room():
    task = choose(task_id="t1", instruction="put an egg in desk")
    assert (task.parent, task.instruction, task.initial_state) == (
        "t1",
        "put an egg in desk",
        TASKS[1].initial_state,
    )
    assert choose(task_id="t1", instruction=TASKS[1].instruction) == TASKS[1]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"task_id": "t33"}, "no task 't33' in train. Near it: t3"),
        ({"index": 5}, "no task number 5. Expected 0 to 4"),
        ({"index": -1}, "no task number -1"),
        ({"index": 1, "task_id": "t2"}, "Task number 1 is t1, not t2"),
        ({"split": "test"}, "The split 'test' is not served here. Expected 'train'"),
        ({"instruction": "put a mug in desk"}, "Near it: put a mug in desk .*Add task_id"),
        (
            {"task_id": "t1", "instruction": "be happy"},
            "'be happy' cannot be done in the room of t1: follows no template",
        ),
        ({"taskid": "t1"}, "taskid: Extra inputs are not permitted.*It takes seed, episode_id, task_id"),
        ({"task_id": 3}, "task_id: Input should be a valid string"),
        ({"seed": -1}, "seed: Input should be greater than or equal to 0"),
        ({"instruction": "x" * 2000}, "at most 1000 characters"),
    ],
)
def test_an_invalid_request_is_refused(options, words):
    with pytest.raises(ConfigError, match=words):
        choose(**options)
