"""Records of JSON Lines files, one after the other: plain or compressed, rotated, with broken lines.

A file is never read whole. A line that is no JSON object or list is skipped with its place; the last line of
a file that a program was still writing is often one.
"""

from __future__ import annotations

import gzip
import json
import os
import re
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import IO, Any

from components.errors import DataError
from components.trajectories.imports.logged_episode import Skipped, shortened
from components.trajectories.imports.rotated_files import Age, file_age, log_name

MOST_LINE_BYTES = 64 << 20
"""Longest line that is read; a longer one is skipped."""
_LOG = re.compile(r"\.(json|jsonl|ndjson)\b")
_DAMAGE = (gzip.BadGzipFile, EOFError, zlib.error)
DAMAGED_FILE = "a compressed file that is cut off or damaged"
BROKEN_LINE = "a line that is not JSON"
LONG_LINE = f"a line of more than {MOST_LINE_BYTES >> 20} MiB"
LONG_DOCUMENT = f"a JSON document over many lines of more than {MOST_LINE_BYTES >> 20} MiB"
_OPENINGS = (b"{", b"[")
"""First lines of a JSON document over many lines, as `json.dumps(..., indent=1)` or `jq` writes it."""


def log_files(paths: Sequence[Path]) -> list[Path]:
    """The files of `paths`: of a directory all `.jsonl`, `.ndjson` and `.json` files below.

    The files of one log stand together, the oldest first (`rotated_files.py`).

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
    by_path = {_normalised(path): path for path in found}
    return [by_path[path] for path in sorted(by_path, key=_log_and_age)]


def common_folder(paths: Sequence[Path]) -> Path:
    """The deepest folder that all of `paths` are in; the folder itself if it is the only one of them."""
    return Path(os.path.commonpath([_normalised(path if path.is_dir() else path.parent) for path in paths]))


def _normalised(path: Path) -> Path:
    """The absolute path without `..`; links stay, since their names say which log they belong to."""
    return Path(os.path.normpath(path.absolute()))


def _log_and_age(path: Path) -> tuple[str, Age, str]:
    return str(path.parent / log_name(path.name)), file_age(path.name), path.name


def records(path: Path, folder: Path | None = None) -> Iterator[tuple[str, Any] | Skipped]:
    """(place, record) of each line of a file; what is skipped, in its place.

    A place is `FILE:LINE`. The file is named relative to `folder`, by default its own.

    Raises:
        DataError: the file cannot be read.
    """
    name = _name(path, folder)
    try:
        with _open(path) as file:
            for number, line in enumerate(_lines(file), start=1):
                place = f"{name}:{number}"
                if line is None:
                    yield Skipped(LONG_LINE, place)
                elif line.strip():
                    yield _record(line, place)
    except _DAMAGE as error:  # the lines before the damage are kept
        yield Skipped(DAMAGED_FILE, name, shortened(error))
    except OSError as error:
        raise DataError(f"{path} cannot be read: {error}.", "Expected JSON Lines.") from error


def documents(path: Path, folder: Path | None = None) -> Iterator[tuple[str, Any] | Skipped]:
    """As `records`, and a file that is one JSON document over many lines is one record.

    A document that is too long is skipped as a whole.

    Raises:
        DataError: the file cannot be read.
    """
    try:
        with _open(path) as file:
            text = file.read(MOST_LINE_BYTES + 1)
    except (OSError, *_DAMAGE):
        text = b""  # `records` says what is wrong with it
    if 0 < len(text) <= MOST_LINE_BYTES and not isinstance(_record(text.splitlines()[0], ""), tuple):
        whole = _record(text, _name(path, folder))
        if isinstance(whole, tuple):
            yield whole
            return
    if len(text) > MOST_LINE_BYTES and text.split(b"\n", 1)[0].strip() in _OPENINGS:
        yield Skipped(LONG_DOCUMENT, _name(path, folder))
        return
    yield from records(path, folder)


def _name(path: Path, folder: Path | None) -> str:
    return Path(os.path.relpath(path, folder or path.parent)).as_posix()


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
