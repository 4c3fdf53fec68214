"""Wall time of work that may be killed and resumed: all attempts count, the time between them does not.

A thread writes the time so far to a file in the work directory every few seconds. A kill loses at most one
such interval.
"""

from __future__ import annotations

import contextlib
import threading
import time
from pathlib import Path
from types import TracebackType

FILE_NAME = ".seconds"
"""Name of the file in the work directory. `stop` removes it."""
SAVE_SECONDS = 5.0
"""Seconds between two writes of the file."""


class Stopwatch:
    """`with Stopwatch(work) as watch: ...`, then `watch.stop()` when all work is done."""

    def __init__(self, work: Path) -> None:
        self._file = work / FILE_NAME
        self._ended = threading.Event()
        self._earlier_seconds = _read_seconds(self._file)
        self._start = time.monotonic()
        self._thread = threading.Thread(target=self._save_regularly, name="stopwatch", daemon=True)

    @property
    def seconds(self) -> float:
        """Seconds of all attempts so far."""
        return self._earlier_seconds + time.monotonic() - self._start

    def __enter__(self) -> Stopwatch:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ended.set()
        self._thread.join()
        self._save()

    def stop(self) -> float:
        """Seconds of all attempts. Removes the file, which is not part of the result."""
        self._file.unlink(missing_ok=True)
        return self.seconds

    def _save_regularly(self) -> None:
        while not self._ended.wait(SAVE_SECONDS):
            self._save()

    def _save(self) -> None:
        """Write the time so far. If the disk is full, the last time that was written counts."""
        temporary = self._file.with_name(f"{FILE_NAME}.tmp")
        with contextlib.suppress(OSError):
            temporary.write_text(f"{self.seconds:.2f}", encoding="utf-8")
            temporary.replace(self._file)


def _read_seconds(file: Path) -> float:
    try:
        return max(0.0, float(file.read_text(encoding="utf-8")))
    except (OSError, ValueError):
        return 0.0
