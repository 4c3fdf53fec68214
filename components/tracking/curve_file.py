"""Curves of a stage: written at once to a file in its work directory, and in batches to MLflow.

The file remains after a kill. A resumed stage continues after the points that its checkpoint covers, and a
reused stage shows its curves with their original times. A point that is measured again replaces the earlier
one and all later ones.

A thread sends the points while the stage runs. If MLflow does not answer, the points are kept and sent later.
The rest is sent when the stage ends, and an error of MLflow then ends the stage like any other error.
"""

from __future__ import annotations

import json
import logging
import math
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import NamedTuple

from components.errors import DreamGymError

CURVES = ".curves.jsonl"
"""Name of the file, with one line a step: [step, time in ms, {name: value}]. It stays in the result."""
MIN_PAUSE_SECONDS = 2.0
MAX_PAUSE_SECONDS = 60.0
PAUSE_RATIO = 100.0
"""Pause between two batches, as a multiple of the time that the last batch took: sending takes 1 % of the
time.
"""
_LOG = logging.getLogger(__name__)


class Point(NamedTuple):
    """One value of a curve; `time` is in milliseconds since 1970."""

    name: str
    step: int
    time: int
    value: float


Send = Callable[[Sequence[Point]], None]


class Curves:
    """A context manager around the stage's work. Call `add` from the stage's thread only."""

    def __init__(self, directory: Path, send: Send) -> None:
        """Read the points of earlier attempts.

        Args:
            directory: the stage's work directory.
            send: logs points, and raises DreamGymError if it fails.
        """
        self._path = directory / CURVES
        self._send = send
        self._earlier = read_curves(directory)
        _end_last_line(self._path)
        self._names = set(self._earlier)
        self._unsent: list[Point] = []
        self._lock = threading.Lock()
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._send_regularly, name="curves", daemon=True)

    @property
    def names(self) -> set[str]:
        """Names of the curves that have a point."""
        return set(self._names)

    def add(self, step: int, values: Mapping[str, float]) -> None:
        """Add a point to each curve at `step` (from 0). Values that are not finite are left out."""
        now = int(time.time() * 1000)
        points = [
            Point(name, step, now, float(value)) for name, value in values.items() if math.isfinite(value)
        ]
        self._write(step, now, values)
        earlier = [point for name in values for point in self._earlier.pop(name, []) if point.step < step]
        self._names |= {point.name for point in (*earlier, *points)}
        with self._lock:
            self._unsent += earlier + points
        if not self._thread.ident:
            self._thread.start()

    def __enter__(self) -> Curves:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Send the remaining points. If the stage failed, its own error is raised and not one of sending."""
        self._ended.set()
        if self._thread.ident:
            self._thread.join()
        with self._lock:
            self._unsent = [point for points in self._earlier.values() for point in points] + self._unsent
            self._earlier.clear()
        if error is None:
            self._send_unsent()
        else:
            with suppress(DreamGymError):
                self._send_unsent()

    def _send_regularly(self) -> None:
        pause = 0.1
        has_warned = False
        while not self._ended.wait(pause):
            start = time.monotonic()
            try:
                self._send_unsent()
            except DreamGymError as error:
                if not has_warned:
                    _LOG.warning("Points of curves are kept and sent later: %s", error)
                has_warned = True
            send_seconds = time.monotonic() - start
            pause = min(MAX_PAUSE_SECONDS, max(MIN_PAUSE_SECONDS, PAUSE_RATIO * send_seconds))

    def _send_unsent(self) -> None:
        with self._lock:
            points = self._unsent
            self._unsent = []
        try:
            if points:
                self._send(points)
        except BaseException:
            with self._lock:
                self._unsent = points + self._unsent
            raise

    def _write(self, step: int, now: int, values: Mapping[str, float]) -> None:
        """Append a line. If the disk is full, a resumed stage has gaps in its curves."""
        json_values = {name: float(value) if math.isfinite(value) else None for name, value in values.items()}
        with suppress(OSError), self._path.open("a", encoding="utf-8") as file:
            file.write(json.dumps([step, now, json_values]) + "\n")


def read_curves(directory: Path) -> dict[str, list[Point]]:
    """The curves of a stage by name; empty if there is no file. Incomplete lines are left out."""
    path = directory / CURVES
    curves: dict[str, list[Point]] = {}
    if not path.is_file():
        return curves
    with path.open(encoding="utf-8", errors="replace") as file:
        for line in file:
            with suppress(ValueError, TypeError, AttributeError):
                step, time_ms, values = json.loads(line)
                for name, value in values.items():
                    _set_last(curves.setdefault(str(name), []), name, int(step), int(time_ms), value)
    return {name: points for name, points in curves.items() if points}


def _end_last_line(path: Path) -> None:
    """Append a newline if a kill left the last line incomplete."""
    with suppress(OSError), path.open("r+b") as file:
        content = file.read()
        if content and not content.endswith(b"\n"):
            file.write(b"\n")


def _set_last(points: list[Point], name: str, step: int, time_ms: int, value: float | None) -> None:
    """Append a point to a curve, instead of the points at its step and later."""
    while points and points[-1].step >= step:
        points.pop()
    if value is not None:
        points.append(Point(name, step, time_ms, float(value)))
