"""Recall of the states of an episode that mention what an action names."""

from __future__ import annotations

from components.experience.episodic_recall import recall

PAST = [
    "Room: desk 1, shelf 2, shelf 21. Holding nothing.",
    "At desk 1: mug 1, pen 1. Holding nothing.",
    "Took mug 1 from desk 1. Holding mug 1.",
    "At shelf 2: nothing. Holding mug 1.",
    "Moved mug 1 to shelf 2. Holding nothing.",
    "At shelf 21: vase 1. Holding nothing.",
]


def test_an_action_recalls_the_states_of_its_place_in_order():
    assert recall(PAST, "go to shelf 2", 4) == [
        "At shelf 2: nothing. Holding mug 1.",
        "Moved mug 1 to shelf 2. Holding nothing.",
    ]


def test_a_number_does_not_match_its_prefix():
    assert recall([*PAST, "At desk 1: pen 1. Holding nothing."], "go to shelf 21", 4) == [
        "At shelf 21: vase 1. Holding nothing."
    ]


def test_states_that_share_more_with_the_action_rank_above_later_ones():
    assert recall(PAST, "take mug 1 from desk 1", 2) == [
        "At desk 1: mug 1, pen 1. Holding nothing.",
        "Took mug 1 from desk 1. Holding mug 1.",
    ]


def test_the_first_and_the_current_state_are_not_recalled():
    assert recall(PAST, "go to shelf 21", 4) == []
    assert (
        recall([PAST[0], "At desk 1: pen 1.", "At shelf 2: nothing.", "At desk 1: pen 1."], "go to desk 1", 4)
        == []
    )


def test_of_equal_texts_only_the_latest_counts():
    closed, opened = "At safe 1: closed.", "At safe 1: open, key 1."
    assert recall([PAST[0], closed, opened, closed, PAST[1]], "go to safe 1", 4) == [opened, closed]


def test_nothing_is_recalled_with_k_zero_or_without_named_objects():
    assert recall(PAST, "go to shelf 2", 0) == []
    assert recall(PAST, "look", 4) == []
    assert recall(PAST[:1], "go to shelf 2", 4) == []
