"""A pool of browsers: each worker process has one Chromium and plays a share of the rows in its tabs.

A worker that does not answer in time, or whose process dies, is ended with all that it started. It is
replaced when it is needed next. Its rows get an error text in place of an observation. No process and no file
remains:

1. A worker leads a process group of its own, so that its driver ends with it. It ends by itself when the
   connection to its owner breaks (`worker.py`).
2. The browser asks the kernel to be ended with its driver (`chromium.py`).
3. All that a worker started is recognised by its environment or by the browser's session (`processes.py`).
   What still runs after the worker is killed.
4. Profiles and temporary files lie in the worker's folder, which is removed with the worker. The next pool
   removes folders whose owner was killed.
"""

from __future__ import annotations

import contextlib
import fcntl
import multiprocessing
import os
import shutil
import signal
import tempfile
import time
import weakref
from collections.abc import Mapping
from dataclasses import dataclass, replace
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import IO, Any

from components.environments.browser.engine.messages import Fork, Observation, PoolSettings
from components.environments.browser.engine.processes import (
    FOLDER_PREFIX,
    OWNER_LOCK,
    kill_remaining,
    remove_abandoned_folders,
    started_by,
)
from components.environments.browser.engine.worker import HEARTBEAT, START_SECONDS, serve
from components.errors import EnvironmentFailure

_CONTEXT = multiprocessing.get_context("spawn")
MAX_LOADS_PER_BROWSER = 400
"""Episodes after which a browser is replaced, which gives its memory back."""
GRACE_SECONDS = 3.0
"""Seconds that a worker has to end by itself before it is killed."""


@dataclass(frozen=True)
class _Worker:
    """A running worker process, the pipes to it, and its locked folder."""

    process: Any
    pipe: Connection
    lifeline: Connection
    folder: Path
    lock_file: IO[str]
    loads: int = 0
    has_answered: bool = False


class Browsers:
    """Worker processes behind `load`, `step`, `probe` and `picture`. Neighbouring rows share a browser."""

    def __init__(self, settings: PoolSettings) -> None:
        self._settings = settings
        self._workers: list[_Worker | None] = [None] * settings.size
        self._slot_of_row: dict[int, int] = {}
        self.replaced = 0
        """Browsers that were replaced because they died or hung."""
        remove_abandoned_folders()
        self._finalizer = weakref.finalize(self, _end_all, self._workers)

    def load(self, specs: Mapping[int, Mapping[str, Any]]) -> dict[int, Observation | str]:
        """Start each row's task. Rows whose worker dies are tried once more in a new one."""
        self._slot_of_row = {
            row: place * len(self._workers) // len(specs) for place, row in enumerate(sorted(specs))
        }
        for slot, worker in enumerate(self._workers):
            if worker and (worker.loads > MAX_LOADS_PER_BROWSER or not worker.process.is_alive()):
                self._stop_worker(slot)
        answers = self._ask("load", specs)
        lost = {row: specs[row] for row, answer in answers.items() if isinstance(answer, _WorkerLost)}
        return answers | (self._ask("load", lost) if lost else {})

    def step(self, actions: Mapping[int, str]) -> dict[int, Observation | str]:
        """Take one action per row. Return its observation, or an error text where infrastructure failed."""
        return self._ask("step", actions)

    def probe(self, forks: Mapping[int, Fork]) -> dict[int, list[Observation] | str]:
        """Return what each of several actions would lead to. The rows stay where they are."""
        return self._ask("probe", forks)

    def picture(self, row: int) -> bytes:
        """Return a row's page as a PNG.

        Raises:
            EnvironmentFailure: the page cannot be drawn.
        """
        answer = self._ask("picture", {row: None})[row]
        if not isinstance(answer, bytes):
            raise EnvironmentFailure(f"There is no picture of row {row}: {answer}")
        return answer

    def processes(self) -> list[int]:
        """Return the process ids of the running workers."""
        return [worker.process.pid for worker in self._workers if worker]

    def close(self) -> None:
        """End all browsers. May be called twice."""
        self._finalizer()
        self._finalizer = weakref.finalize(self, _end_all, self._workers)

    def _ask(self, verb: str, rows: Mapping[int, Any]) -> dict[int, Any]:
        """Send each worker its rows and return the answers by row."""
        shares: dict[int, dict[int, Any]] = {}
        for row, payload in rows.items():
            shares.setdefault(self._slot_of_row[row], {})[row] = payload
        answers: dict[int, Any] = {}
        for slot, share in shares.items():
            try:
                self._worker(slot, verb, share).pipe.send((verb, share))
            except OSError as error:
                answers |= self._give_up(slot, share, f"ended ({type(error).__name__})")
        waiting = {slot: {row for row in share if row not in answers} for slot, share in shares.items()}
        deadlines = {slot: self._deadline(slot) for slot in waiting}
        while waiting := {slot: open_rows for slot, open_rows in waiting.items() if open_rows}:
            self._receive(waiting, deadlines, answers)
        return answers

    def _deadline(self, slot: int) -> float:
        """Return when a worker counts as hung. Its first answer may also take the start of its browser."""
        worker = self._workers[slot]
        return (
            time.monotonic()
            + self._settings.patience_seconds
            + (0.0 if worker and worker.has_answered else START_SECONDS)
        )

    def _receive(
        self, waiting: dict[int, set[int]], deadlines: dict[int, float], answers: dict[int, Any]
    ) -> None:
        """Take the answers that have arrived. Give up workers that died or whose time is over."""
        pipes: dict[Any, int] = {worker.pipe: slot for slot in waiting if (worker := self._workers[slot])}
        ready: list[Any] = wait(
            list(pipes), timeout=max(0.0, min(deadlines[slot] for slot in waiting) - time.monotonic())
        )
        for pipe in ready:
            slot = pipes[pipe]
            try:
                row, answer = pipe.recv()
            except (OSError, EOFError) as error:
                answers |= self._give_up(slot, waiting.pop(slot), f"ended ({type(error).__name__})")
                continue
            if row != HEARTBEAT:
                answers[row] = answer
                waiting[slot].discard(row)
            if (worker := self._workers[slot]) and not worker.has_answered:
                self._workers[slot] = replace(worker, has_answered=True)
            deadlines[slot] = self._deadline(slot)
        for slot in [slot for slot in waiting if deadlines[slot] <= time.monotonic()]:
            answers |= self._give_up(
                slot, waiting.pop(slot), f"did not answer for {self._settings.patience_seconds:.0f} seconds"
            )

    def _give_up(self, slot: int, rows: Any, reason: str) -> dict[int, Any]:
        """Stop a worker at once and return the error text of its rows."""
        self._stop_worker(slot, gracefully=False)
        self.replaced += 1
        return {row: _WorkerLost(f"The browser's process {reason}.") for row in rows}

    def _worker(self, slot: int, verb: str, share: Mapping[int, Any]) -> _Worker:
        """Return the worker of `slot`, started if need be, with the loads of `share` added to its count."""
        worker = self._workers[slot] or _start_worker(slot, self._settings)
        loads = (
            len(share)
            if verb == "load"
            else sum(len(fork.alternatives) for fork in share.values())
            if verb == "probe"
            else 0
        )
        self._workers[slot] = worker = replace(worker, loads=worker.loads + loads)
        return worker

    def _stop_worker(self, slot: int, *, gracefully: bool = True) -> None:
        worker = self._workers[slot]
        self._workers[slot] = None
        if worker:
            _end_worker(worker, gracefully)


class _WorkerLost(str):
    """An error text about a worker that has ended, not about one row."""

    __slots__ = ()


def _start_worker(slot: int, settings: PoolSettings) -> _Worker:
    folder = Path(tempfile.mkdtemp(prefix=FOLDER_PREFIX))
    lock_file = (folder / OWNER_LOCK).open("w")
    fcntl.flock(lock_file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    pipe, worker_pipe = _CONTEXT.Pipe()
    lifeline, worker_lifeline = _CONTEXT.Pipe()
    process = _CONTEXT.Process(
        target=serve,
        args=(worker_pipe, worker_lifeline, str(folder), settings),
        daemon=True,
        name=f"browser-{slot}",
    )
    try:
        process.start()
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        lock_file.close()
        raise
    worker_pipe.close()
    worker_lifeline.close()
    return _Worker(process, pipe, lifeline, folder, lock_file)


def _end_all(workers: list[_Worker | None]) -> None:
    for slot, worker in enumerate(workers):
        if worker:
            workers[slot] = None
            _end_worker(worker, gracefully=True)


def _end_worker(worker: _Worker, gracefully: bool) -> None:
    """End a worker, its driver and its browser, and remove its folder."""
    if gracefully:
        with contextlib.suppress(OSError):
            worker.pipe.send(("close", {}))
        worker.process.join(timeout=GRACE_SECONDS)
    for pipe in (worker.pipe, worker.lifeline):
        pipe.close()
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(worker.process.pid, signal.SIGKILL)
    if worker.process.is_alive():
        worker.process.kill()
    worker.process.join()
    kill_remaining(lambda: started_by(worker.folder))
    shutil.rmtree(worker.folder, ignore_errors=True)
    worker.lock_file.close()
