"""A temporary file of values in groups, so that a large export needs little memory.

The spans of a trace are spread over an export. Each is written behind the others, and a trace is read again
as a whole. The file lies in the system's temporary folder (`TMPDIR`) without a name, so it does not stay
behind when the process is killed.
"""

from __future__ import annotations

import contextlib
import marshal
import os
import tempfile
from array import array
from collections.abc import Iterator
from types import TracebackType
from typing import Any

from components.errors import DataError

_SIZE_BYTES = 8


class GroupedFile:
    """Values on the disk, in groups with names; all of them are added before the first is read.

    A value is what JSON can spell, or a tuple of such values. They are written by `marshal`: `pickle` cannot
    write values that are as deep as `json` reads them. In memory are the names, and 8 bytes for each value.
    """

    def __init__(self) -> None:
        self._file = tempfile.TemporaryFile()  # noqa: SIM115
        self._places: dict[str, array[int]] = {}

    def __enter__(self) -> GroupedFile:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with contextlib.suppress(OSError):  # what a full disk has not taken yet is not needed
            self._file.close()

    def append(self, group: str, value: Any) -> None:
        """Add a value at the end of a group.

        Raises:
            DataError: the file cannot be written.
        """
        content = marshal.dumps(value)
        try:
            self._places.setdefault(group, array("Q")).append(self._file.tell())
            self._file.write(len(content).to_bytes(_SIZE_BYTES) + content)
        except OSError as error:
            raise DataError(
                f"A temporary file in {tempfile.gettempdir()} cannot be written: {error}.",
                "Expected room for twice the spans of the export, without compression.",
                "Name a folder on a larger disk: TMPDIR=FOLDER dreamgym import ...",
            ) from error

    def read(self, group: str) -> list[Any]:
        """Return the values of a group in the order in which they were added; [] if it has none."""
        return [self._value(place) for place in self._places.get(group, ())]

    def groups(self) -> Iterator[tuple[str, list[Any]]]:
        """Return (name, values) of each group, in the order of their first values."""
        return ((group, self.read(group)) for group in self._places)

    def __iter__(self) -> Iterator[Any]:
        """Return all values in the order in which they were added."""
        place, end = 0, self._file.seek(0, os.SEEK_END)
        while place < end:
            yield self._value(place)
            place = self._file.tell()

    def _value(self, place: int) -> Any:
        self._file.seek(place)
        size = int.from_bytes(self._file.read(_SIZE_BYTES))
        return marshal.loads(self._file.read(size))
