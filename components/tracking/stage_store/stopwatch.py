"""The wall time of a piece of work that may be killed and taken up again: each attempt counts, the time
between them does not.

A thread notes in the work directory how long it has run, every few seconds; a kill loses as much at most.
"""

from __future__ import annotations

import contextlib
import threading
import time
from pathlib import Path
from types import TracebackType

NOTE = ".seconds"
"""The file in the work directory, gone when the work is done."""
EVERY = 5.0


class Stopwatch:
    """`with Stopwatch(work) as watch: ...`, and `watch.stop()` once all is done."""

    def __init__(self, work: Path) -> None:
        self._note, self._ended = work / NOTE, threading.Event()
        self._before = _read(self._note)
        self._began = time.monotonic()
        self._thread = threading.Thread(target=self._keep, name="stopwatch", daemon=True)

    @property
    def seconds(self) -> float:
        """Seconds of all attempts so far."""
        return self._before + time.monotonic() - self._began

    def __enter__(self) -> Stopwatch:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ended.set()
        self._thread.join()
        self._write()

    def stop(self) -> float:
        """Seconds of all attempts; the note is gone, as it is no part of the result."""
        self._note.unlink(missing_ok=True)
        return self.seconds

    def _keep(self) -> None:
        while not self._ended.wait(EVERY):
            self._write()

    def _write(self) -> None:
        """A full disk is the work's matter: the time is then counted from the last note."""
        beside = self._note.with_name(f"{NOTE}.tmp")
        with contextlib.suppress(OSError):
            beside.write_text(f"{self.seconds:.2f}", encoding="utf-8")
            beside.replace(self._note)


def _read(note: Path) -> float:
    try:
        return max(0.0, float(note.read_text(encoding="utf-8")))
    except (OSError, ValueError):
        return 0.0
