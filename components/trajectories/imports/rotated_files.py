"""Names of rotated log files: which log a file belongs to, and which of its files is older.

Files are of one log if they have the same path without the suffix of the rotation:

- `log.jsonl.2.gz` and `log.2.jsonl`: a number; the higher one is older;
- `log.jsonl.2026-01-31`, `log.jsonl-20260131`, `log.2026-01-31.jsonl`: a date, perhaps with a time or a
  number behind it; the earlier one is older;
- `log.jsonl`: the newest.

In front of the extension only a dot begins a suffix: `run-1.jsonl`, `run-2026-01-31.jsonl` and
`heat0.7.jsonl` are logs of their own.
"""

from __future__ import annotations

import re
from pathlib import PurePosixPath

_TIME = r"(?P<time>(?:\d{6,}|\d{4}-\d\d)[\d_:TZ+-]*)(?:\.(?P<part>\d{1,5}))?"
_ROTATED = (
    re.compile(rf"(?P<stem>.+?)(?:\.(?P<number>\d{{1,5}})|[.-]{_TIME})(?P<extension>)"),
    re.compile(rf"(?P<stem>.*[^\d.])\.(?:(?P<number>[1-9]\d{{0,4}})|{_TIME})(?P<extension>\.[A-Za-z]\w*)"),
)
Age = tuple[int, str, int]


def log_name(name: str) -> str:
    """Return the name of the log that the file `name` belongs to: `log.jsonl` of `log.jsonl.2.gz`."""
    return _name_and_age(name)[0]


def file_age(name: str) -> Age:
    """Return a key that sorts the names of one log's files from the oldest to the newest."""
    return _name_and_age(name)[1]


def file_of(place: str) -> str:
    """Return the file of a line's place: `r1/log.jsonl.1` of `r1/log.jsonl.1:12`."""
    return place.rpartition(":")[0] or place


def log_of(place: str) -> str:
    """Return the log of a line's place: `r1/log.jsonl` of `r1/log.jsonl.1:12`."""
    path = PurePosixPath(file_of(place))
    return str(path.parent / log_name(path.name))


def _name_and_age(name: str) -> tuple[str, Age]:
    name = name.removesuffix(".gz")
    match = next(filter(None, (pattern.fullmatch(name) for pattern in _ROTATED)), None)
    if match is None:
        return name, (2, "", 0)
    log = match["stem"] + match["extension"]
    if match["number"]:
        return log, (1, "", -int(match["number"]))
    return log, (0, re.sub(r"\D", "", match["time"]), int(match["part"] or 0))
