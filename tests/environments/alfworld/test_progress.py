"""How far an episode has come: it rises along an expert's way, is whole for successes alone, and is read from
the states.
"""

import pytest
from builders import make_episode, make_task

from components.environments.alfworld.progress import progress

H = " Holding nothing."
ROOM = "Room: desk 1, desk 2, microwave 1, shelf 1." + H
FOUND = ("go to desk 1", "At desk 1: mug 1, mug 2." + H)
TOOK = ("take mug 1 from desk 1", "Took mug 1 from desk 1. Holding mug 1.")
HOT = ("heat mug 1 with microwave 1", "Heated mug 1 with microwave 1. Holding hot mug 1.")
WRONG = ("move mug 1 to desk 2", "Moved mug 1 to desk 2." + H)
RIGHT = ("move mug 1 to shelf 1", "Moved mug 1 to shelf 1." + H)


def test_progress_rises_along_expert_episodes_and_ends_at_1(played):
    for episode in played["expert"]:
        values = [progress(episode.up_to(step)) for step in range(len(episode.steps) + 1)]
        assert values == sorted(values) and values[0] == 0 and values[-1] == 1, (
            episode.task.instruction,
            values,
        )


def test_only_a_success_has_progress_1(played):
    shares = [(progress(e), e.success) for episodes in played.values() for e in episodes]
    assert all((value == 1) == won and 0 <= value <= 1 for value, won in shares)
    assert len({value for value, won in shares if not won}) > 3


@pytest.mark.parametrize(
    ("instruction", "steps", "expected"),
    [
        ("put a mug in shelf", [], 0),
        ("put a mug in shelf", [FOUND], 1 / 4),
        ("put a mug in shelf", [FOUND, TOOK], 2 / 4),
        ("put a mug in shelf", [FOUND, TOOK, WRONG], 2 / 4),
        ("put a hot mug in shelf", [FOUND, TOOK, RIGHT], 3 / 5),
        ("put a hot mug in shelf", [FOUND, TOOK, HOT], 3 / 5),
        ("put two mug in shelf", [FOUND, TOOK, RIGHT], 4 / 7),
        (
            "look at mug under the desklamp",
            [FOUND, ("use desklamp 1", "Turned on desklamp 1 at desk 1." + H)],
            3 / 5,
        ),
        ("dance", [FOUND, TOOK], 0),
    ],
)
def test_the_share_of_the_steps_that_are_done(instruction, steps, expected):
    assert progress(
        make_episode(make_task(instruction=instruction, initial_state=ROOM), *steps)
    ) == pytest.approx(expected)
