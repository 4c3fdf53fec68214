"""Tasks with similar instructions form one cluster, whose returns the curriculum pools."""

from __future__ import annotations

from builders import make_task

from components.config import CurriculumConfig
from components.experience.retrieval.encoders import HashingEncoder
from components.experience.tasks.curriculum import Curriculum
from components.experience.tasks.task_clusters import cluster_tasks

THINGS = ["mug", "pan", "egg", "cup", "pen"]
TASKS = [make_task(n, instruction=f"put a {thing} in shelf") for n, thing in enumerate(THINGS)] + [
    make_task(5 + n, instruction=f"look at {thing} under the desklamp") for n, thing in enumerate(THINGS)
]


def test_similar_instructions_are_in_one_cluster():
    numbers = cluster_tasks(TASKS, HashingEncoder(), 2, seed=0)
    assert len(set(numbers[:5])) == len(set(numbers[5:])) == 1 and numbers[0] != numbers[5]
    assert cluster_tasks(TASKS, HashingEncoder(), 2, seed=0) == numbers


def test_each_text_is_a_cluster_if_there_are_fewer_texts_than_clusters():
    tasks = [TASKS[0], TASKS[5], TASKS[0]]
    numbers = cluster_tasks(tasks, HashingEncoder(), 8, seed=0)
    assert numbers[0] == numbers[2] != numbers[1]


def test_the_curriculum_values_a_task_by_the_returns_of_its_cluster():
    curriculum = Curriculum(
        TASKS,
        CurriculumConfig(seeds=3, candidates=1),
        lambda tasks, seed: [""] * len(tasks),
        lambda task: "",
        lambda tasks, seed: cluster_tasks(tasks, HashingEncoder(), 2, seed),
    )
    won = {task.id: (task, [float(n < 5 and n % 2 == 0)]) for n, task in enumerate(TASKS)}
    curriculum.report(won, 0)
    assert {round(curriculum.task_values[task.id], 6) for task in TASKS[:5]} == {0.24} and {
        curriculum.task_values[t.id] for t in TASKS[5:]
    } == {0.0}
