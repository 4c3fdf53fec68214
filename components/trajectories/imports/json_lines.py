"""Records of JSON Lines files, one after the other: plain or compressed, rotated, with broken lines.

A file is never read whole. A line that is no JSON object or list is skipped with its place; the last line of
a file that a program was still writing is often one.
"""

from __future__ import annotations

import gzip
import json
import re
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import IO, Any

from components.errors import DataError
from components.trajectories.imports.logged_episode import Skipped, shortened

MOST_LINE_BYTES = 64 << 20
"""Longest line that is read; a longer one is skipped."""
_LOG = re.compile(r"\.(json|jsonl|ndjson)\b")
_ROTATED = re.compile(r"^(?P<name>.*?)(?:\.(?P<number>\d+))?(?P<gzip>\.gz)?$")
BROKEN_LINE = "a line that is not JSON"
LONG_LINE = f"a line of more than {MOST_LINE_BYTES >> 20} MiB"


def log_files(paths: Sequence[Path]) -> list[Path]:
    """The files of `paths`: of a directory all `.jsonl`, `.ndjson` and `.json` files below.

    Rotated files come oldest first.

    `log.jsonl.2.gz` is older than `log.jsonl.1`, which is older than `log.jsonl`.

    Raises:
        DataError: no path is named, a path does not exist, or a directory has no such file.
    """
    if not paths:
        raise DataError("No file is named.", "Expected a log.", "Type dreamgym import FILE.")
    found: list[Path] = []
    for path in paths:
        if path.is_dir():
            inside = [file for file in sorted(path.rglob("*")) if _LOG.search(file.name) and file.is_file()]
            if not inside:
                raise DataError(
                    f"{path} has no JSON Lines file.",
                    "Expected files such as log.jsonl, log.jsonl.1 or log.jsonl.gz.",
                    "Name the files themselves.",
                )
            found += inside
        elif path.is_file():
            found.append(path)
        else:
            raise DataError(f"There is no file {path}.", "Expected a log.", "Check the path.")
    return sorted(dict.fromkeys(found), key=_age)


def _age(path: Path) -> tuple[str, int]:
    match = _ROTATED.match(path.name)
    assert match is not None
    return str(path.parent / match["name"]), -int(match["number"] or 0)


def records(path: Path) -> Iterator[tuple[str, Any] | Skipped]:
    """(place, record) of each line of a file; what is skipped, in its place.

    Raises:
        DataError: the file cannot be read.
    """
    try:
        with _open(path) as file:
            for number, line in enumerate(_lines(file), start=1):
                place = f"{path.name}:{number}"
                if line is None:
                    yield Skipped(LONG_LINE, place)
                elif line.strip():
                    yield _record(line, place)
    except (EOFError, zlib.error):  # the lines before the damage are kept
        yield Skipped("a compressed file that is cut off or damaged", path.name)
    except OSError as error:
        raise DataError(f"{path} cannot be read: {error}.", "Expected JSON Lines.") from error


def documents(path: Path) -> Iterator[tuple[str, Any] | Skipped]:
    """As `records`, and a file that is one JSON document over many lines is one record.

    Raises:
        DataError: the file cannot be read.
    """
    try:
        with _open(path) as file:
            text = file.read(MOST_LINE_BYTES + 1)
    except (OSError, EOFError, zlib.error):
        text = b""  # `records` says what is wrong with it
    if 0 < len(text) <= MOST_LINE_BYTES and not isinstance(_record(text.splitlines()[0], ""), tuple):
        whole = _record(text, path.name)
        if isinstance(whole, tuple):
            yield whole
            return
    yield from records(path)


def _open(path: Path) -> IO[bytes]:
    with path.open("rb") as file:
        is_compressed = file.read(2) == b"\x1f\x8b"
    return gzip.open(path, "rb") if is_compressed else path.open("rb")  # type: ignore[return-value]


def _lines(file: IO[bytes]) -> Iterator[bytes | None]:
    """The lines of a file; None for one that is too long."""
    while line := file.readline(MOST_LINE_BYTES + 1):
        is_long = len(line) > MOST_LINE_BYTES
        while is_long and not line.endswith(b"\n") and (line := file.readline(MOST_LINE_BYTES)):
            pass
        yield None if is_long else line


def _record(line: bytes, place: str) -> tuple[str, Any] | Skipped:
    try:
        record = json.loads(line)
    except (ValueError, RecursionError):
        return Skipped(BROKEN_LINE, place, shortened(line[:200].decode(errors="replace")))
    if not isinstance(record, dict | list):
        return Skipped(BROKEN_LINE, place, shortened(record))
    return place, record
