"""Puts the messages of interleaved conversations together: logs with one message a line.

A line has a message and the name of its conversation. Conversations that run at the same time are mixed in
such a log, across rotated files too, so all of them are held until the log ends. Conversations with the same
name in different logs (`rotated_files.py`) are different ones.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from components.trajectories.imports.copies.line_copies import Line, has_line_ids, time_field, without_copies
from components.trajectories.imports.line_times import in_order_of_times
from components.trajectories.imports.logged_episode import Skipped, Unusable
from components.trajectories.imports.message_lists import IDS
from components.trajectories.imports.rotated_files import log_of


def whole_records(lines: Iterable[tuple[str, Any] | Skipped]) -> Iterator[tuple[str, Any] | Skipped]:
    """The lines, with single messages of one conversation replaced by one record, at the end of the log.

    Messages are in the order of their times if all of a conversation have one, else in that of the log.
    Copies of messages, and conversations whose times cannot be compared, are skipped. Fields of later
    messages beside `role` and `content` win.
    """
    conversations: dict[tuple[str, str], list[Line]] = {}
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
            conversations.setdefault((log_of(place), name), []).append((place, record))
        else:
            yield Skipped("a message without the name of its conversation", place)
    for (_, name), messages in conversations.items():
        yield from _whole_record(name, messages)


def _whole_record(name: str, messages: Sequence[Line]) -> Iterator[tuple[str, Any] | Skipped]:
    """The record of one conversation, behind the copies of its messages."""
    try:
        ordered = in_order_of_times(messages, time_field(messages))
    except Unusable as problem:
        yield Skipped(problem.reason, messages[0][0], problem.found)
        return
    kept, copies = without_copies(ordered, has_id=has_line_ids(messages), has_time=bool(time_field(messages)))
    yield from copies
    record = {field: value for _, message in kept for field, value in message.items()}
    record.pop("role")
    record.pop("content", None)
    yield kept[0][0], record | {"episode_id": name, "messages": [message for _, message in kept]}
