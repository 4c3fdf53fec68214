"""The curves of a stage: written to a file in its work directory at once, and to MLflow in batches while the
stage runs.

The file outlives a kill, so a resumed stage goes on behind the points that its checkpoint covers, and a
reused stage shows its curves with the times at which they were made. A point that is measured again takes the
place of the earlier one and of those behind it.

A thread sends the points. While MLflow does not answer they are kept and sent later; what is left when the
stage ends is sent then, and an error of MLflow ends the stage as any other.
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
"""The file, one line a step: [step, time in ms, {name: value}]. It stays in the finished stage's directory.
"""
SECONDS, MAX_SECONDS, COST = 2.0, 60.0, 100.0
"""Pause between two batches: at least `SECONDS`, and `COST` times as long as the last batch took, so that
they take 1 % of the time.
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
    """Use it as a context manager around the stage's work; `add` may be called from its thread only."""

    def __init__(self, directory: Path, send: Send) -> None:
        """Args: directory: the stage's work directory; send: logs points, raising DreamGymError where it
        cannot.
        """
        self._path, self._send = directory / CURVES, send
        self._earlier = read_curves(directory)
        _end_last_line(self._path)
        self._names = set(self._earlier)
        self._waiting: list[Point] = []
        self._lock, self._ended = threading.Lock(), threading.Event()
        self._thread = threading.Thread(target=self._keep_sending, name="curves", daemon=True)

    @property
    def names(self) -> set[str]:
        """The curves that have a point."""
        return set(self._names)

    def add(self, step: int, values: Mapping[str, float]) -> None:
        """One more point of each curve at `step`, which counts from 0; what is not finite is no point."""
        now = int(time.time() * 1000)
        points = [
            Point(name, step, now, float(value)) for name, value in values.items() if math.isfinite(value)
        ]
        self._write(step, now, values)
        before = [point for name in values for point in self._earlier.pop(name, []) if point.step < step]
        self._names |= {point.name for point in (*before, *points)}
        with self._lock:
            self._waiting += before + points
        if not self._thread.ident:
            self._thread.start()

    def __enter__(self) -> Curves:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Send what is left. Where the stage has failed, its own error is the one to see."""
        self._ended.set()
        if self._thread.ident:
            self._thread.join()
        with self._lock:
            self._waiting = [point for points in self._earlier.values() for point in points] + self._waiting
            self._earlier.clear()
        if error is None:
            self._send_waiting()
        else:
            with suppress(DreamGymError):
                self._send_waiting()

    def _keep_sending(self) -> None:
        pause, warned = 0.1, False
        while not self._ended.wait(pause):
            began = time.monotonic()
            try:
                self._send_waiting()
            except DreamGymError as error:
                if not warned:
                    _LOG.warning("Points of curves are kept and sent later: %s", error)
                warned = True
            pause = min(MAX_SECONDS, max(SECONDS, COST * (time.monotonic() - began)))

    def _send_waiting(self) -> None:
        with self._lock:
            points, self._waiting = self._waiting, []
        try:
            if points:
                self._send(points)
        except BaseException:
            with self._lock:
                self._waiting = points + self._waiting
            raise

    def _write(self, step: int, now: int, values: Mapping[str, float]) -> None:
        """A full disk is the stage's matter: without the file a resumed stage has gaps in its curves."""
        plain = {name: float(value) if math.isfinite(value) else None for name, value in values.items()}
        with suppress(OSError), self._path.open("a", encoding="utf-8") as file:
            file.write(json.dumps([step, now, plain]) + "\n")


def read_curves(directory: Path) -> dict[str, list[Point]]:
    """The curves of a stage by name; none where there is no file. Lines that a kill or a disk cut short are
    left out.
    """
    path, found = directory / CURVES, dict[str, list[Point]]()
    if not path.is_file():
        return found
    with path.open(encoding="utf-8", errors="replace") as file:
        for line in file:
            with suppress(ValueError, TypeError, AttributeError):
                step, moment, values = json.loads(line)
                for name, value in values.items():
                    _set(found.setdefault(str(name), []), name, int(step), int(moment), value)
    return {name: points for name, points in found.items() if points}


def _end_last_line(path: Path) -> None:
    """A kill may have cut the last line short: the next one begins a line of its own."""
    with suppress(OSError), path.open("r+b") as file:
        content = file.read()
        if content and not content.endswith(b"\n"):
            file.write(b"\n")


def _set(points: list[Point], name: str, step: int, moment: int, value: float | None) -> None:
    """Put a point at the end of a curve, in place of those at its step and behind."""
    while points and points[-1].step >= step:
        points.pop()
    if value is not None:
        points.append(Point(name, step, moment, float(value)))
