"""Logs with one message a line: their times, their copies, and conversations of the same name."""

from __future__ import annotations

import json

import pytest

from components.trajectories.imports.copies.line_copies import COPY
from components.trajectories.imports.line_times import MIXED_TIMES, NO_TIME
from components.trajectories.imports.log_formats import logged_episodes
from components.trajectories.imports.logged_episode import LoggedEpisode, Skipped
from components.trajectories.imports.outcomes import outcome_rule

TEXTS = ("s0", "a0", "s1", "a1", "s2")


def make_messages(*fields, name="0"):
    """The messages of one conversation, each with its own further fields."""
    fields = fields or ({},) * len(TEXTS)
    return [
        {"conversation_id": name, "role": ("user", "assistant")[number % 2], "content": text, **own}
        for number, (text, own) in enumerate(zip(TEXTS, fields, strict=False))
    ]


def timed(*times, field="timestamp"):
    return make_messages(*({field: time} for time in times))


def write(path, lines):
    path.parent.mkdir(exist_ok=True)
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path


def read(*paths):
    entries = list(logged_episodes(paths, "openai", outcome_rule("", 1.0), str))
    episodes = [entry for entry in entries if isinstance(entry, LoggedEpisode)]
    return episodes, [entry for entry in entries if isinstance(entry, Skipped)]


def texts(episode):
    steps = [text for step in episode.steps for text in (step.action, step.observation)]
    return [episode.first_observation, *filter(None, steps)]


@pytest.mark.parametrize("names", [("run1.jsonl", "run2.jsonl"), ("r1/log.jsonl", "r2/log.jsonl")])
def test_conversations_of_the_same_name_in_two_logs_stay_apart(tmp_path, names):
    for name in names:
        write(tmp_path / name, make_messages())
    episodes, skipped = read(tmp_path)
    assert [texts(episode) for episode in episodes] == [list(TEXTS)] * 2 and not skipped
    assert [episode.place for episode in episodes] == [f"{name}:1" for name in names]


@pytest.mark.parametrize(
    "names",
    [
        ("app.jsonl.2", "app.jsonl.1", "app.jsonl"),
        ("app.jsonl.2026-01-01", "app.jsonl.2026-01-02", "app.jsonl"),
    ],
)
def test_a_conversation_goes_on_in_the_next_of_the_rotated_files(tmp_path, names):
    for number, name in enumerate(names):
        write(tmp_path / name, make_messages()[2 * number : 2 * number + 2])
    (episode,), skipped = read(tmp_path)
    assert texts(episode) == list(TEXTS) and not skipped


@pytest.mark.parametrize(
    "times",
    [
        ("2026-01-01T00:00:00Z", "2026-01-01T00:00:00.5Z", "2026-01-01T00:00:01Z"),
        ("2026-01-01T09:00:00+02:00", "2026-01-01T08:00:00Z", "2026-01-01T06:30:00-02:00"),
        ("2026-01-01T00:00:00", "2026-01-01 00:00:01Z", "2026-01-01T01:00:02+01:00"),
        (9, 10, 11.5),
        ("9", "10", "11.5"),
        (1_700_000_000, 1_700_000_000_500, 1_700_000_001_000_000),
    ],
    ids=str,
)
def test_messages_are_in_the_order_of_their_times(tmp_path, times):
    first, second, third = timed(*times)
    (episode,), skipped = read(write(tmp_path / "log.jsonl", [third, first, second]))
    assert texts(episode) == list(TEXTS[:3]) and not skipped


@pytest.mark.parametrize(
    ("times", "reason"),
    [
        (("2026-01-01T00:00:00Z", "yesterday", "2026-01-01T00:00:02Z"), NO_TIME),
        ((1.0, True, 3.0), NO_TIME),
        ((1.0, float("inf"), 3.0), NO_TIME),
        (("2026-01-01T00:00:00Z", 1_767_225_601, 1_767_225_602), MIXED_TIMES),
    ],
    ids=str,
)
def test_times_that_cannot_be_compared_are_a_named_skip(tmp_path, times, reason):
    episodes, skipped = read(write(tmp_path / "log.jsonl", timed(*times)))
    assert not episodes and [entry.reason for entry in skipped] == [reason]


def test_without_a_time_in_every_message_the_order_is_that_of_the_log(tmp_path):
    messages = make_messages({"time": 3}, {}, {"time": 1})
    (episode,), _ = read(write(tmp_path / "log.jsonl", messages))
    assert texts(episode) == list(TEXTS[:3])


@pytest.mark.parametrize("field", ["timestamp", "message_id", "id"])
def test_a_message_that_is_delivered_twice_counts_once(tmp_path, field):
    messages = timed(10, 11, 12, 13, 14, field=field)
    lines = [*messages[:2], messages[1], *messages[2:]]
    (episode,), skipped = read(write(tmp_path / "log.jsonl", lines))
    assert texts(episode) == list(TEXTS)
    assert [(entry.reason, entry.place) for entry in skipped] == [(COPY, "log.jsonl:3")]


@pytest.mark.parametrize("times", [(10, 11, 12, 13, 14), (10, 11, 11, 11, 14)])
def test_messages_at_the_end_of_one_file_and_the_beginning_of_the_next_count_once(tmp_path, times):
    messages = timed(*times)
    write(tmp_path / "log.jsonl.1", messages[:4])
    write(tmp_path / "log.jsonl", messages[2:])
    (episode,), skipped = read(tmp_path)
    assert texts(episode) == list(TEXTS) and [entry.reason for entry in skipped] == [COPY] * 2


def test_equal_messages_that_nothing_marks_as_copies_stay(tmp_path):
    ask, answer = make_messages()[:2]
    bare = write(tmp_path / "bare.jsonl", [ask, answer, ask, ask])
    same_id = write(tmp_path / "same.jsonl", [line | {"id": "s"} for line in (ask, answer, ask, ask)])
    same_second = write(tmp_path / "second.jsonl", [line | {"ts": 5} for line in (ask, answer) * 2])
    episodes, skipped = read(bare, same_id, same_second)
    assert not skipped
    assert [texts(episode)[2:] for episode in episodes] == [["s0\n\ns0"], ["s0\n\ns0"], ["s0", "a0"]]
