"""Copies, beginnings and windows of one conversation; outcomes that contradict each other."""

from __future__ import annotations

import random

import pytest

from components.trajectories.imports.copies.episode_copies import (
    CONTRADICTION,
    MIDDLE,
    PART,
    SHORTER_COPY,
    without_copies,
)
from components.trajectories.imports.dataset import build
from components.trajectories.imports.logged_episode import LoggedEpisode, LoggedStep

TURNS = ["You see a door.", *(f"room {number}" for number in range(1, 9))]
"""What the agent saw before each of its actions."""


def call(start, end, *, first=None, task="", name="a", success=None, thought=""):
    """A logged call whose messages begin before action `start` and end with action `end`."""
    steps = tuple(
        LoggedStep(thought, f"walk {place}", TURNS[place + 1] if place < end else None)
        for place in range(start, end + 1)
    )
    first = first or TURNS[start]
    return LoggedEpisode(name, f"{name}:{start}-{end}", "", task or first, first, steps, success)


def whole(end, **fields):
    """An episode from the beginning to the answer to action `end`."""
    episode = call(0, end + 1, **fields)
    return LoggedEpisode(**{**vars(episode), "place": "whole", "steps": episode.steps[:-1]})


def reasons(skipped):
    return {entry.place: entry.reason for entry in skipped}


def places(episodes):
    return [episode.place for episode in episodes]


@pytest.mark.parametrize("task", ["", "find the exit"])
def test_windows_of_a_conversation_are_no_episodes_of_their_own(task):
    calls = [call(max(0, end - 2), end, task=task, success=True) for end in range(7)]
    kept, skipped = without_copies(calls)
    assert places(kept) == ["a:0-2"]
    assert kept[0].success is None, "the conversation went on after this call"
    assert reasons(skipped) == {
        **dict.fromkeys(("a:0-0", "a:0-1"), SHORTER_COPY),
        **dict.fromkeys(("a:1-3", "a:2-4", "a:3-5", "a:4-6"), MIDDLE),
    }


def test_windows_in_another_order_are_none_either():
    kept, skipped = without_copies([call(2, 4), call(1, 3), call(0, 2)])
    assert places(kept) == ["a:0-2"] and set(reasons(skipped).values()) == {MIDDLE}


def test_a_part_of_the_whole_conversation_is_a_copy_that_gives_its_thoughts():
    kept, skipped = without_copies([call(2, 4, thought="left?"), whole(5, success=True)])
    assert places(kept) == ["whole"] and kept[0].success is True
    assert reasons(skipped) == {"a:2-4": PART}
    assert [step.thought for step in kept[0].steps] == ["", "", "left?", "left?", "left?", ""]


@pytest.mark.parametrize("first", [TURNS[0], f"{TURNS[0]}\n\n{TURNS[2]}"])
def test_windows_that_keep_the_first_message_are_windows(first):
    kept, skipped = without_copies([call(0, 1), call(0, 4), call(2, 5, first=first)])
    assert places(kept) == ["a:0-4"] and reasons(skipped) == {"a:0-1": SHORTER_COPY, "a:2-5": MIDDLE}


def test_windows_under_another_name_and_other_conversations_under_one_name_stay():
    other = LoggedEpisode("a", "other", "", "t", "You see a lamp.", call(0, 1).steps, True)
    kept, skipped = without_copies([call(0, 4), call(2, 6, name="b"), other])
    assert len(kept) == 3 and not skipped


def test_another_task_and_an_ended_episode_are_not_gone_on_with():
    ended = LoggedEpisode(**{**vars(whole(3, success=True)), "is_over": True})
    kept, _ = without_copies([ended, call(2, 6)])
    assert len(kept) == 2 and kept[0].success is True
    kept, _ = without_copies([call(0, 4, task="find the exit"), call(2, 6, task="find the lamp")])
    assert len(kept) == 2


def test_of_two_episodes_that_could_each_follow_the_other_one_stays():
    def ring(place, *letters):
        steps = tuple(
            LoggedStep("", f"go {letter}", None if n == len(letters) - 2 else letter)
            for n, letter in enumerate(letters[1:])
        )
        return LoggedEpisode("a", place, "", letters[0], letters[0], steps, None)

    kept, skipped = without_copies([ring("one", *"xyxy"), ring("two", *"yxyx")])
    assert places(kept) == ["one"] and reasons(skipped) == {"two": MIDDLE}


def test_attempts_at_one_task_under_its_name_are_no_windows():
    generator = random.Random(0)

    def attempt(number):
        walks = [(generator.randrange(3), generator.randrange(3)) for _ in range(generator.randrange(2, 9))]
        steps = tuple(LoggedStep("", f"go {door}", f"room {room}") for door, room in walks)
        last = LoggedStep("", "stop", None)
        return LoggedEpisode("a", f"{number}", "", "t", "start", (*steps, last), number % 2 == 0)

    kept, skipped = without_copies([attempt(number) for number in range(200)])
    assert len(kept) > 150 and not {PART, MIDDLE} & set(reasons(skipped).values())


def test_a_second_attempt_that_begins_alike_is_no_window():
    looked = (LoggedStep("", "look", TURNS[0]), LoggedStep("", "walk 0", None))
    first = LoggedEpisode("a", "first", "", "t", TURNS[0], looked, False)
    second = call(0, 3, task="t", success=True)
    kept, skipped = without_copies([first, second])
    assert len(kept) == 2 and not skipped


def test_a_known_outcome_of_another_episode_is_not_deleted():
    won = whole(0, name="won", success=True)
    lost = whole(1, name="lost", success=False)
    kept, skipped = without_copies([won, lost])
    assert [episode.success for episode in kept] == [True, False] and not skipped
    kept, skipped = without_copies([won, whole(0, name="lost", success=False)])
    assert [episode.success for episode in kept] == [True, False] and not skipped
    kept, skipped = without_copies([won, whole(1, name="open", success=None)])
    assert [episode.success for episode in kept] == [True, None] and not skipped


def test_an_equal_or_unknown_outcome_of_another_episode_is_a_copy():
    lost = whole(1, name="lost", success=False)
    copies = [whole(0, name="b", success=False), whole(1, name="c", success=None), whole(0, name="d")]
    for copy in copies:
        kept, skipped = without_copies([copy, lost])
        assert [episode.id for episode in kept] == ["lost"] and len(skipped) == 1


def test_without_names_beginnings_are_copies_and_equal_texts_with_both_outcomes_are_two_episodes():
    lost = whole(1, name="", success=False)
    kept, _ = without_copies([whole(0, name="", success=True), lost])
    assert [episode.success for episode in kept] == [False]
    kept, _ = without_copies([whole(1, name="", success=True), lost, lost])
    assert [episode.success for episode in kept] == [True, False]


def test_one_episode_with_two_outcomes_is_unknown_and_counted():
    kept, skipped = without_copies(
        [whole(1, success=True), whole(1, success=False), whole(1, success=True), whole(0, success=True)]
    )
    assert [episode.success for episode in kept] == [None]
    assert [entry.reason for entry in skipped] == [CONTRADICTION, SHORTER_COPY, SHORTER_COPY]


def test_the_data_has_no_task_that_begins_in_the_middle():
    calls = [call(max(0, end - 2), end, task="find the exit") for end in range(7)]
    others = [whole(1, name=f"o{n}", task=f"task {n}", success=True) for n in range(3)]
    imported = build([*calls, *others], "recorded", held_out=0.1, longest_text=100)
    assert {task.initial_state for own in imported.tasks.values() for task in own} == {TURNS[0]}
    assert imported.reasons[MIDDLE] == 4
