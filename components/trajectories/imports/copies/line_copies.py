"""Copies of a log's lines: delivered twice, or repeated at the beginning of the next rotated file.

Equal lines need not be copies: an agent may wait twice. A line is a copy of an equal one of its episode if

- all lines have a number in the episode, or an id that no two different lines share; or
- all lines have a time, and the equal line stands directly before it or in another file; or
- the equal line stands directly before it, and the line cannot follow itself (`cannot_repeat`).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from components.trajectories.imports.logged_episode import Skipped
from components.trajectories.imports.rotated_files import file_of

COPY = "a copy of a line of the same episode"
_LINE_IDS = ("message_id", "msg_id", "event_id", "id", "uuid", "uid")
_TIMES = ("timestamp", "time", "created_at", "created", "ts")
Line = tuple[str, Mapping[str, Any]]
"""Place and record of a line."""


def without_copies(
    lines: Sequence[Line],
    *,
    has_id: bool,
    has_time: bool,
    cannot_repeat: Callable[[Mapping[str, Any]], bool] = lambda line: False,
) -> tuple[list[Line], list[Skipped]]:
    """Return the lines of one episode without copies, and the copies.

    Args:
        lines: in their order.
        has_id: each line has its number in the episode, or an id.
        has_time: each line has the time at which it was written.
        cannot_repeat: whether a line cannot happen twice in a row, as a step that leads to another state.
    """
    contents = [json.dumps(record, sort_keys=True) for _, record in lines]
    if len(set(contents)) == len(contents):
        return list(lines), []
    kept: list[Line] = []
    copies: list[Skipped] = []
    files: dict[str, set[str]] = {}
    previous = ""
    for (place, record), content in zip(lines, contents, strict=True):
        in_files = files.setdefault(content, set())
        is_repeated = content == previous or file_of(place) not in in_files
        is_certain = has_id or (content == previous and cannot_repeat(record))
        if in_files and (is_certain or (has_time and is_repeated)):
            copies.append(Skipped(COPY, place))
        else:
            kept.append((place, record))
            in_files.add(file_of(place))
        previous = content
    return kept, copies


def time_field(lines: Sequence[Line]) -> str:
    """Return the field with a time in all of the lines; "" if there is none."""
    return next((field for field in _TIMES if has_field(field, lines)), "")


def has_line_ids(lines: Sequence[Line]) -> bool:
    """Return whether a field such as `message_id` is in all lines, and differs where the lines differ."""
    return any(has_field(field, lines) and _tells_apart(field, lines) for field in _LINE_IDS)


def has_field(field: str, lines: Sequence[Line]) -> bool:
    """Return whether all lines have a value of the field."""
    return all(record.get(field) not in (None, "") for _, record in lines)


def _tells_apart(field: str, lines: Sequence[Line]) -> bool:
    values = {json.dumps(record, sort_keys=True): str(record[field]) for _, record in lines}
    return 1 < len(values) == len(set(values.values()))
