"""Puts the messages of interleaved conversations together: logs with one message a line.

A line has a message and the name of its conversation. Conversations that run at the same time are mixed in
such a log, across rotated files too, so all of them are held until the log ends.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from components.trajectories.imports.logged_episode import Skipped
from components.trajectories.imports.message_lists import IDS

_TIMES = ("timestamp", "time", "created_at", "created", "ts")


def whole_records(lines: Iterable[tuple[str, Any] | Skipped]) -> Iterator[tuple[str, Any] | Skipped]:
    """The lines, with single messages of one conversation replaced by one record, at the end of the log.

    Messages are in the order of their times if all of a conversation have one of one kind, else in that of
    the log. Fields of later messages beside `role` and `content` win.
    """
    conversations: dict[str, list[tuple[str, Mapping[str, Any]]]] = {}
    for line in lines:
        if isinstance(line, Skipped):
            yield line
            continue
        place, record = line
        if not isinstance(record, Mapping) or "role" not in record:
            yield line
            continue
        name = next((str(record[key]) for key in IDS if record.get(key) not in (None, "")), "")
        if name:
            conversations.setdefault(name, []).append((place, record))
        else:
            yield Skipped("a message without the name of its conversation", place)
    for name, messages in conversations.items():
        if key := _time_key(messages):
            messages.sort(key=lambda entry: entry[1][key])
        record = {field: value for _, message in messages for field, value in message.items()}
        record.pop("role")
        record.pop("content", None)
        yield messages[0][0], record | {"episode_id": name, "messages": [message for _, message in messages]}


def _time_key(messages: list[tuple[str, Mapping[str, Any]]]) -> str:
    """The field with the time of every message; "" if there is none."""
    for key in _TIMES:
        values = [message.get(key) for _, message in messages]
        if all(isinstance(value, str) for value in values):
            return key
        if all(isinstance(value, int | float) and not isinstance(value, bool) for value in values):
            return key
    return ""
