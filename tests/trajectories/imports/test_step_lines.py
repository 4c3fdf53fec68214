"""Recorded steps whose log has holes, copies, several files, odd rewards or a step limit."""

from __future__ import annotations

import json

import pytest

from components.trajectories.imports.copies.line_copies import COPY
from components.trajectories.imports.log_formats import logged_episodes
from components.trajectories.imports.logged_episode import LoggedEpisode, Skipped
from components.trajectories.imports.outcomes import outcome_rule
from components.trajectories.imports.step_lines import GAP, NO_BEGINNING, NUMBER_TWICE


def make_step(number, episode="e", **fields):
    """One of the steps of an episode: without the observation after it, as Gymnasium's recorders write it."""
    step = {"episode_id": episode, "step": number, "observation": f"o{number}", "action": f"a{number}"}
    return {name: value for name, value in (step | fields).items() if value is not None}


def make_unnumbered(*names, **fields):
    return [make_step(name, **fields) | {"step": None} for name in names]


def write(path, *lines):
    path.parent.mkdir(exist_ok=True)
    texts = (line if isinstance(line, str) else json.dumps(line) for line in lines)
    path.write_text("".join(f"{text}\n" for text in texts))
    return path


def read(*paths, outcome=""):
    entries = list(logged_episodes(paths, "steps", outcome_rule(outcome, 1.0), str))
    episodes = [entry for entry in entries if isinstance(entry, LoggedEpisode)]
    return episodes, [entry for entry in entries if isinstance(entry, Skipped)]


def actions(episodes):
    return [[step.action for step in episode.steps] for episode in episodes]


def reasons(skipped):
    return [entry.reason for entry in skipped]


def test_a_lost_line_is_found_by_the_numbers_of_the_steps(tmp_path):
    whole = [make_step(number, "whole") for number in range(3)]
    broken = [make_step(0), '{"episode_id": "e", "st', make_step(2), make_step(3, reward=1.0)]
    episodes, skipped = read(write(tmp_path / "log.jsonl", *whole, *broken))
    assert actions(episodes) == [["a0", "a1", "a2"]]
    assert reasons(skipped) == ["a line that is not JSON", GAP]
    assert skipped[-1].found == "step 0 is followed by step 2"


def test_an_episode_without_its_beginning_is_refused(tmp_path):
    lines = [make_step(number) for number in (7, 8, 9)]
    assert reasons(read(write(tmp_path / "log.jsonl", *lines))[1]) == [NO_BEGINNING]
    one_line = {"episode_id": "e", "steps": lines}
    assert reasons(read(write(tmp_path / "episodes.jsonl", one_line))[1]) == [NO_BEGINNING]


def test_numbers_that_are_far_apart_are_a_gap(tmp_path):
    lines = [make_step(number) for number in (0, 10**12)]
    assert reasons(read(write(tmp_path / "log.jsonl", *lines))[1]) == [GAP]


def test_a_log_may_count_from_one_but_then_all_of_it_does(tmp_path):
    from_one = [make_step(number, "b") for number in (1, 2)]
    episodes, skipped = read(write(tmp_path / "log.jsonl", *from_one))
    assert actions(episodes) == [["a1", "a2"]] and not skipped
    episodes, skipped = read(write(tmp_path / "both.jsonl", make_step(0, "a"), make_step(1, "a"), *from_one))
    assert actions(episodes) == [["a0", "a1"]] and reasons(skipped) == [NO_BEGINNING]


@pytest.mark.parametrize("numbers", [("0", "1"), (0.0, 1.0)])
def test_numbers_may_be_text_or_whole_floats(tmp_path, numbers):
    lines = [make_step(number) for number in numbers]
    (episode,), _ = read(write(tmp_path / "log.jsonl", *lines[::-1]))
    assert episode.first_observation == f"o{numbers[0]}"


def test_an_endless_number_is_none(tmp_path):
    (episode,), _ = read(write(tmp_path / "log.jsonl", make_step(0, t=0), make_step(float("inf"))))
    assert len(episode.steps) == 2


@pytest.mark.parametrize("names", [("run1.jsonl", "run2.jsonl"), ("r1/steps.jsonl", "r2/steps.jsonl")])
@pytest.mark.parametrize("has_numbers", [True, False])
def test_episodes_of_the_same_name_in_two_logs_stay_apart(tmp_path, names, has_numbers):
    lines = [make_step(number, "0") if has_numbers else make_unnumbered(number)[0] for number in (0, 1)]
    for name in names:
        write(tmp_path / name, *lines)
    episodes, skipped = read(tmp_path)
    assert actions(episodes) == [["a0", "a1"]] * 2 and not skipped
    assert [episode.place for episode in episodes] == [f"{name}:1" for name in names]


def test_an_episode_goes_on_in_the_next_of_the_rotated_files(tmp_path):
    for name, number in (("s.jsonl.2", 0), ("s.jsonl.1", 1), ("s.jsonl", 2)):
        write(tmp_path / name, *make_unnumbered(number))
    episodes, skipped = read(tmp_path)
    assert actions(episodes) == [["a0", "a1", "a2"]] and not skipped


def test_a_step_that_is_delivered_twice_counts_once(tmp_path):
    write(tmp_path / "o.jsonl.1", make_step(0), make_step(1, reward=float("nan")))
    write(tmp_path / "o.jsonl", make_step(1, reward=float("nan")), make_step(2), make_step(2))
    episodes, skipped = read(tmp_path)
    assert actions(episodes) == [["a0", "a1", "a2"]]
    assert [(entry.reason, entry.place) for entry in skipped] == [(COPY, "o.jsonl:1"), (COPY, "o.jsonl:3")]


def test_two_steps_with_one_number_and_other_content_are_refused(tmp_path):
    lines = [make_step(0), make_step(1), make_step(1, action="other")]
    assert reasons(read(write(tmp_path / "log.jsonl", *lines))[1]) == [NUMBER_TWICE]


def test_equal_steps_without_numbers_are_copies_only_with_a_time_or_an_id(tmp_path):
    wait = make_unnumbered("w")[0]
    for fields in ({}, {"id": "e"}, {"time": "night"}):
        path = write(tmp_path / "log.jsonl", *[wait | fields] * 2)
        assert actions(read(path)[0]) == [["aw", "aw"]], "an agent may wait twice"
    timed = {**wait, "timestamp": 1.5}
    episodes, skipped = read(write(tmp_path / "timed.jsonl", timed, timed, {**wait, "timestamp": 2.5}))
    assert actions(episodes) == [["aw", "aw"]] and reasons(skipped) == [COPY]


@pytest.mark.parametrize(
    ("rewards", "expected"),
    [
        ([0.1] * 10, True),
        ([0.8999999761581421, 0.10000000149011612], True),  # 0.9 and 0.1 in 32 bits
        ([0.9, 0.0999], False),
        (["0", "True"], True),
        (["0", "false"], False),
        ([False, True], True),
        ([None, 1], True),
        ([0, ""], None),
        ([1, "N/A"], None),
        (["null", 1], None),
        ([0, "NaN"], None),
    ],
    ids=str,
)
def test_the_sum_of_the_rewards_is_the_outcome(tmp_path, rewards, expected):
    lines = [make_step(number, reward=reward) for number, reward in enumerate(rewards)]
    (episode,), skipped = read(write(tmp_path / "log.jsonl", *lines))
    assert episode.success is expected and not skipped


@pytest.mark.parametrize("reward", [float("inf"), "inf", "-Infinity", 1e308, 10**400], ids=str)
def test_a_reward_without_a_finite_sum_is_refused(tmp_path, reward):
    lines = [make_step(number, reward=reward) for number in range(2)]
    assert reasons(read(write(tmp_path / "log.jsonl", *lines))[1]) == ["a reward that is not finite"]
    one_line = {"steps": [make_step(0)], "reward": reward if reward != 1e308 else float("inf")}
    assert reasons(read(write(tmp_path / "one.jsonl", one_line))[1]) == ["a reward that is not finite"]


@pytest.mark.parametrize(
    ("end", "is_over"),
    [
        ({"terminated": True, "truncated": True}, True),
        ({"terminated": False, "truncated": True}, False),
        ({"truncated": True}, False),
        ({"done": True}, True),
        ({"done": True, "truncated": True}, False),
        ({"done": True, "info": {"TimeLimit.truncated": True}}, False),
        ({}, False),
    ],
    ids=str,
)
def test_a_step_limit_is_no_end_that_the_world_told(tmp_path, end, is_over):
    line = make_step(0, next_observation="o1", reward=0.0, **end)
    (episode,), _ = read(write(tmp_path / "log.jsonl", line))
    assert episode.is_over is is_over


def test_no_step_may_follow_a_step_limit(tmp_path):
    lines = [make_step(0, truncated=True), make_step(1)]
    skipped = read(write(tmp_path / "log.jsonl", *lines))[1]
    assert reasons(skipped) == ["a step after the end of its episode"]


def test_steps_without_numbers_are_in_the_order_of_their_times_if_all_have_one(tmp_path):
    lines = [
        line | {"timestamp": f"2026-01-01T00:00:0{number}Z"}
        for number, line in enumerate(make_unnumbered("x", "y", "z"))
    ]
    shuffled = [lines[2], lines[0], lines[1], lines[0]]
    episodes, skipped = read(write(tmp_path / "log.jsonl", *shuffled))
    assert actions(episodes) == [["ax", "ay", "az"]] and reasons(skipped) == [COPY]
    for odd in (None, "yesterday"):
        path = write(tmp_path / "odd.jsonl", lines[1], lines[0] | {"timestamp": odd}, lines[2])
        assert actions(read(path)[0]) == [["ay", "ax", "az"]], "the order of the log"


def test_a_step_that_leads_elsewhere_cannot_follow_itself(tmp_path):
    first, second = make_unnumbered("x", "y")
    first["next_observation"], wait = "oy", make_unnumbered("y")[0] | {"next_observation": "oy"}
    episodes, skipped = read(write(tmp_path / "log.jsonl", first, first, wait, wait, second))
    assert actions(episodes) == [["ax", "ay", "ay", "ay"]] and reasons(skipped) == [COPY]
