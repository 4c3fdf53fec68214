"""States of a dream that contradict its history are named; real states never are."""

import pytest
from builders import make_episode, make_task

from components.environments.alfworld.coherence import contradiction

H = " Holding nothing."
ROOM = "Room: desk 1, drawer 1, shelf 1." + H
BODY = make_task(instruction="put a mug in shelf", initial_state=ROOM)
SEEN = make_episode(BODY, ("go to desk 1", "At desk 1: mug 1, pen 1." + H))
TOOK = ("take mug 1 from desk 1", "Took mug 1 from desk 1. Holding mug 1.")
HELD = make_episode(BODY, ("go to desk 1", "At desk 1: mug 1, pen 1." + H), TOOK)


def test_the_real_engine_never_contradicts_itself(played):
    for episodes in played.values():
        for episode in episodes:
            for step in episode.steps:
                history = episode.up_to(step.step)
                assert contradiction(history, step.next_state) == "", (
                    history.states,
                    step.action,
                    step.next_state,
                )


@pytest.mark.parametrize(
    ("history", "lie", "reason"),
    [
        (SEEN, "A dragon.", "no state"),
        (SEEN, ROOM, "no state"),
        (SEEN, "At bed 1: cup 1." + H, "no bed 1"),
        (SEEN, "At drawer 1: open, pen 1, pen 1." + H, "listed twice"),
        (SEEN, "At drawer 1: open, pen 1." + H, "pen 1 is at desk 1"),
        (HELD, "At drawer 1: open, mug 1. Holding mug 1.", "mug 1 is in the hand"),
        (SEEN, "At desk 1: mug 1." + H, "desk 1 changed by itself"),
        (HELD, "At desk 1: mug 1, pen 1." + H, "in the hand is nothing and was mug 1"),
        (HELD, "At desk 1: pen 1. Holding hot mug 1.", "treated by itself"),
        (HELD, "Took pen 1 from desk 1. Holding pen 1.", "full hand"),
        (SEEN, "Took cup 1 from desk 1. Holding cup 1.", "no cup 1 lay there"),
        (SEEN, "Took mug 1 from desk 1. Holding pen 1.", "in the hand is pen 1"),
        (HELD, "Moved pen 1 to desk 1." + H, "in the hand is pen 1"),
        (HELD, "Moved mug 1 to desk 1. Holding mug 1.", "in the hand is mug 1"),
        (SEEN, "At shelf 1: mug 2." + H, "mug is there from the start"),
        (SEEN, "At drawer 1: open, pencil 1, book 1." + H, "in the order of its names"),
        (SEEN, "At drawer 1: open, book 1, safe 3." + H, "safe 3 is a place"),
    ],
)
def test_a_contradiction_is_named(history, lie, reason):
    assert reason in contradiction(history, lie)


@pytest.mark.parametrize(
    ("history", "state"),
    [
        (SEEN, "Nothing happens at desk 1." + H),
        (SEEN, "At drawer 1: closed." + H),
        (SEEN, "At shelf 1: nothing." + H),
        (SEEN, "At shelf 1: bowl 1, box 10, box 2." + H),
        (
            make_episode(
                BODY,
                ("go to desk 1", "At desk 1: mug 1." + H),
                ("move pen 1 to desk 1", "Moved pen 1 to desk 1." + H),
            ),
            "At desk 1: pen 1, mug 1." + H,
        ),
        (SEEN, "Took pen 1 from desk 1. Holding pen 1."),
        (HELD, "At desk 1: pen 1. Holding mug 1."),
        (HELD, "Heated mug 1 with desk 1. Holding hot mug 1."),
        (HELD, "Moved mug 1 to desk 1." + H),
    ],
)
def test_a_possible_state_is_not_objected_to(history, state):
    assert contradiction(history, state) == ""


def test_a_goal_of_two_targets_is_done_from_the_start_only_if_both_are_there():
    pair = make_episode(make_task(instruction="put two mug in shelf", initial_state=ROOM))
    assert contradiction(pair, "At shelf 1: mug 2." + H) == ""
    assert "from the start" in contradiction(pair, "At shelf 1: mug 2, mug 3." + H)
