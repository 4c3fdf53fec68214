"""What recorded tasks teach about made-up ones."""

import pytest
from builders import make_task

from components.config import CurriculumConfig
from components.config.worlds.environment_config import EnvironmentConfig
from components.environments import make_adapter
from components.experience.tasks.curriculum import Curriculum
from components.experience.tasks.task_feasibility import LearntFeasibility, task_feasibility

ROOMS = [("ball", "key"), ("key", "box"), ("box", "ball")]
TASKS = [
    make_task(
        number, instruction=f"{verb} the {wanted}", initial_state=f"You see a {room[0]} and a {room[1]}."
    )
    for number, (verb, wanted, room) in enumerate(
        (verb, wanted, room) for verb in ("go to", "take") for room in ROOMS for wanted in room
    )
]


@pytest.mark.parametrize(
    ("instruction", "reason"),
    [
        ("take the key", ""),
        ("go to the ball", ""),
        ("Take the KEY!", ""),
        ("take the box", "first state does not show"),
        ("eat the key", "no recorded task has"),
        ("take the sword", "no recorded task has"),
    ],
)
def test_known_words_and_things_that_are_there(instruction, reason):
    task = make_task(99, instruction=instruction, initial_state=TASKS[0].initial_state)
    found = LearntFeasibility(TASKS)(task)
    assert reason in found and bool(found) == bool(reason)


def test_recorded_tasks_may_be_played():
    assert not any(map(LearntFeasibility(TASKS), TASKS))


def test_what_is_hidden_at_the_start_may_be_asked_for():
    """A word that first states show only now and then is no thing that has to be seen."""
    hidden = [
        make_task(100 + n, instruction="go to the lamp", initial_state="You see nothing.") for n in range(9)
    ]
    seen = make_task(110, instruction="go to the lamp", initial_state="You see a lamp.")
    judge = LearntFeasibility([*TASKS, *hidden, seen])
    assert judge(make_task(1, instruction="take the lamp", initial_state="You see a key.")) == ""


def test_an_adapter_that_knows_is_asked():
    alfworld = make_adapter(EnvironmentConfig(name="alfworld"))
    plain = make_adapter(EnvironmentConfig(name="alfworld", knowledge=False))
    assert task_feasibility(alfworld, TASKS) == alfworld.feasible
    assert isinstance(task_feasibility(plain, TASKS), LearntFeasibility)


def test_the_curriculum_makes_tasks_up_in_a_plain_world_and_drops_those_that_are_never_won():
    def vary(parents, seed):
        return ["take the ball" if number % 2 else "eat the ball" for number, _ in enumerate(parents)]

    curriculum = Curriculum(
        TASKS[:1], CurriculumConfig(share=0.5, explore=0.5, candidates=2), vary, LearntFeasibility(TASKS)
    )
    returns = {TASKS[0].id: (TASKS[0], [0.0, 1.0])}
    assert curriculum.report(returns, 0)["tasks_accepted"] == 1
    (made,) = curriculum.generated.values()
    assert made.instruction == "take the ball"
    assert curriculum.life[0]["refused"] == {"has a word that no recorded task has": 1}
    curriculum.report({made.id: (made, [0.0, 0.0])}, 1)
    assert made.id not in curriculum.generated
