"""Logged episodes as tasks and transitions: copies, unknown outcomes, splits, and what is left out."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest

from components.errors import DataError
from components.records import Task, Trajectory
from components.trajectories.imports.copies.episode_copies import SHORTER_COPY
from components.trajectories.imports.dataset import END, LONG_TEXT, NO_UNICODE, ONE_STEP, build
from components.trajectories.imports.logged_episode import LoggedEpisode, LoggedStep, Skipped


def make(number=0, *observations, success=True, first="You see a door.", place=None):
    steps = tuple(LoggedStep("", f"push {place}", seen) for place, seen in enumerate(observations))
    return LoggedEpisode(
        "", place or f"log:{number}", "A house.", f"Open door {number}.", first, steps, success
    )


def build_with(*episodes, **options):
    """Built with two further tasks, because one is held out for fidelity and one for tests."""
    others = [make(number, "a", "b") for number in (901, 902)]
    settings = {"held_out": 0.0, "longest_text": 100} | options
    return build([*episodes, *others], "recorded", **settings)


def transitions_of(imported, number):
    (task,) = [task for own in imported.tasks.values() for task in own if f" {number}." in task.instruction]
    return [step for own in imported.transitions.values() for step in own if step.task_id == task.id]


def outcomes(steps):
    return [(step.reward, step.done) for step in steps]


def test_states_follow_each_other_and_the_last_step_has_the_outcome():
    steps = transitions_of(build_with(make(1, "a", "b")), 1)
    assert [(step.step, step.state, step.action, step.next_state) for step in steps] == [
        (0, "You see a door.", "push 0", "a"),
        (1, "a", "push 1", "b"),
    ]
    assert outcomes(steps) == [(0.0, False), (1.0, True)]


def test_a_failure_is_not_said_to_have_ended_unless_the_agent_ended_it():
    imported = build_with(make(1, "a", "b", success=False), make(2, "a", None, success=False))
    assert outcomes(transitions_of(imported, 1)) == [(0.0, False), (0.0, False)]
    assert outcomes(transitions_of(imported, 2)) == [(0.0, False), (0.0, True)]
    assert transitions_of(imported, 2)[-1].next_state == END


def test_an_unknown_outcome_is_not_learnt_as_a_failure():
    imported = build_with(make(1, "a", "b", "c", success=None), make(2, "a", success=None))
    steps = transitions_of(imported, 1)
    assert [step.next_state for step in steps] == ["a", "b"] and outcomes(steps) == [(0.0, False)] * 2
    assert imported.outcomes == Counter(success=2, unknown=1)
    assert imported.reasons == {ONE_STEP: 1}
    assert not any(step.outcome_known for step in steps)


@pytest.mark.parametrize("outcome", [True, False, None])
def test_the_outcome_of_an_imported_episode_is_that_of_the_log(outcome):
    steps = transitions_of(build_with(make(1, "a", "b", success=outcome)), 1)
    episode = Trajectory(Task("t", "recorded", "train", "", ""), tuple(steps))
    assert episode.outcome is outcome and episode.success is bool(outcome)


def test_copies_and_beginnings_count_once():
    calls = [make(1, *"abc"[:count], None, success=None, place=f"call:{count}") for count in range(3)]
    whole = make(1, *"abc", success=True, place="whole")
    imported = build_with(*calls, whole, whole, make(2, "a"))
    assert imported.reasons == {SHORTER_COPY: 4}
    assert {skipped.place for skipped in imported.skipped} == {"call:0", "call:1", "call:2", "whole"}
    assert outcomes(transitions_of(imported, 1))[-1] == (1.0, True)


def test_another_observation_makes_another_episode():
    imported = build_with(make(1, "a", "b"), make(1, "a", "c"))
    assert len(transitions_of(imported, 1)) == 4 and not imported.skipped
    assert len({step.episode_id for step in transitions_of(imported, 1)}) == 2


def test_what_is_too_long_empty_or_no_text_is_left_out_by_name():
    imported = build_with(
        make(1, "x" * 101),
        make(2, " "),
        make(3, "\ud800"),
        make(4, "a"),
        Skipped("a line that is not JSON", "log:9"),
    )
    assert imported.reasons == {
        LONG_TEXT: 1,
        "an empty observation": 1,
        "a text that is not valid Unicode": 1,
        "a line that is not JSON": 1,
    }
    assert imported.skipped[1].found == "observation of 101 characters"


def test_a_system_message_that_is_no_text_leaves_its_episode_out():
    imported = build_with(replace(make(1, "a"), system="A \ud800 house."), make(2, "a"))
    assert [(entry.reason, entry.found) for entry in imported.skipped] == [(NO_UNICODE, "system message")]
    assert set(imported.systems) == {"A house."}


def test_a_task_is_in_one_split_which_does_not_change_as_the_log_grows():
    few = build([make(n, "a") for n in range(200)], "recorded", held_out=0.1, longest_text=100)
    many = build([make(n, "a", "b") for n in range(400)], "recorded", held_out=0.1, longest_text=100)

    def splits(imported):
        return {task.id: split for split, tasks in imported.tasks.items() for task in tasks}

    shares = Counter(splits(many).values())
    assert 20 <= shares["test"] <= 60 and 20 <= shares["fidelity"] <= 60
    assert sum(splits(few)[task] != splits(many)[task] for task in splits(few)) <= 1
    assert {task.split for task in many.tasks["test"]} == {"test"}
    assert {task.split for task in many.tasks["fidelity"]} == {"train"}


def test_fewer_than_three_tasks_are_refused_with_what_was_left_out():
    with pytest.raises(DataError, match=r"1 usable tasks in 1 episodes; left out: a text.*at least 3"):
        build([make(1, "a"), make(2, "x" * 101)], "recorded", held_out=0.1, longest_text=100)
