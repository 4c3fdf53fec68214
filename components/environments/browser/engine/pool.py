"""A pool of browsers: each worker process has one Chromium and plays a share of the rows in tabs of it.

A worker answers row by row. One that does not answer in time, or whose browser dies, is ended with all that
it started and replaced when it is needed next; its rows get an error text in place of what they would have
seen. Nothing is left behind:

1. A worker leads a process group of its own, so that its driver ends with it; it ends by itself when the line
   to its owner breaks.
2. The browser asks the kernel to be ended with its driver (`chromium.py`).
3. All that a worker started is known by the name of the worker's folder in its environment, or by the session
   of the browser that belongs to it; what is still there after the worker is ended.
4. Profiles and temporary files lie in that folder, which goes with the worker; folders of owners that were
   killed are removed by the next pool, which knows them by a lock that the living hold.
"""

from __future__ import annotations

import contextlib
import fcntl
import multiprocessing
import os
import shutil
import signal
import tempfile
import threading
import time
import weakref
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import IO, Any

import psutil

from components.environments.browser.engine.chromium import FEATURES_OFF, STARTED, write_wrapper
from components.environments.browser.engine.tab import (
    Elsewhere,
    Fork,
    PageGone,
    Seat,
    SeatSettings,
    Seen,
    quiet_libraries,
)
from components.errors import EnvironmentFailure

_CONTEXT = multiprocessing.get_context("spawn")
PREFIX, OWNER = "dreamgym-browser-", "DREAMGYM_BROWSER"
"""Of a worker's folder, and the variable that names it in the environment of all that the worker started."""
HELD = "owner"
"""The file of a worker's folder that its owner keeps locked as long as it lives."""
LOADS_A_BROWSER = 400
"""Episodes after which a browser is replaced, which gives its memory back."""
SPARE, BEAT = -1, -2
"""The row of the seat in which alternatives are tried, and that of a message which only says that a long
answer is under way.
"""
GRACE_SECONDS, START_SECONDS = 3.0, 60.0


@dataclass(frozen=True)
class PoolSettings:
    """How many browsers, what they run, and how long one may take for a row before it counts as hung."""

    size: int
    executable: str
    elements: int
    page_seconds: float
    action_seconds: float
    stock: bool = False

    @property
    def patience(self) -> float:
        """Seconds without any answer after which a worker is given up: the longest that a well-behaved page
        can take, twice.
        """
        return 2 * (self.page_seconds + self.action_seconds)


def _serve(pipe: Connection, lifeline: Connection, folder: str, settings: PoolSettings) -> None:
    """A worker's life: answer rows until told to stop or until the owner is gone."""
    os.setpgid(0, 0)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the owner decides
    os.environ |= {OWNER: folder, "TMPDIR": folder}
    tempfile.tempdir = folder
    threading.Thread(target=_end_with_owner, args=(lifeline, os.getppid()), daemon=True).start()
    quiet_libraries()
    seats = _Seats(folder, settings, lambda: pipe.send((BEAT, None)))
    while True:
        try:
            verb, rows = pipe.recv()
        except (EOFError, OSError):
            break
        if verb == "close":
            break
        for row, payload in rows.items():
            pipe.send((row, seats.answer(verb, row, payload)))
    seats.close()


def _end_with_owner(lifeline: Connection, owner: int) -> None:
    """End this process and its group when the owner is gone, even while the page hangs."""
    with contextlib.suppress(EOFError, OSError):
        while not lifeline.poll(1.0) and os.getppid() == owner:
            pass
    os.killpg(0, signal.SIGKILL)


class _Seats:
    """The seats of one worker: its rows', and a spare one for trying alternatives."""

    def __init__(self, folder: str, settings: PoolSettings, beat: Callable[[], None]) -> None:
        self._folder, self._settings, self._beat = Path(folder), settings, beat
        self._seats: dict[int, Seat] = {}
        self._playwright: Any = None
        self._browser: Any = None

    def answer(self, verb: str, row: int, payload: Any) -> Any:
        """What `row` sees, or an error text; its seat is given up then, or the spare one where an alternative
        failed.
        """
        try:
            return getattr(self, f"_{verb}")(row, payload)
        except Exception as error:  # reported to the owner, which decides
            if seat := self._seats.pop(SPARE if verb == "probe" else row, None):
                with contextlib.suppress(Exception):
                    seat.close()
            said = str(error).splitlines()[0] if str(error) else ""
            return (
                f"The page died: {said}."
                if isinstance(error, PageGone)
                else f"{type(error).__name__}: {said}"
            )

    def _load(self, row: int, spec: Mapping[str, Any]) -> Seen:
        return self._seat(row).load(spec)

    def _step(self, row: int, action: str) -> Seen:
        if row not in self._seats:
            raise PageGone("its browser was replaced")
        return self._seats[row].step(action)

    def _picture(self, row: int, _payload: None) -> bytes:
        return self._seats[row].picture()

    def _probe(self, _row: int, fork: Fork) -> list[Seen]:
        """What each alternative leads to, in a spare seat where the episode is played again up to here."""
        found = []
        for alternative in fork.alternatives:
            seen = self._load(SPARE, fork.spec)
            for action in fork.history:
                self._beat()
                seen = self._seats[SPARE].step(action)
            self._beat()
            if seen.state != fork.state:
                raise Elsewhere(f"played again, the episode came to {seen.state!r} and not to {fork.state!r}")
            found.append(self._seats[SPARE].step(alternative))
            self._beat()
        return found

    def _seat(self, row: int) -> Seat:
        if self._browser is None or (not self._settings.stock and not self._browser.is_connected()):
            self._start()
        if row not in self._seats:
            self._seats[row] = self._make()
        return self._seats[row]

    def _make(self) -> Seat:
        limits = self._settings
        settings = SeatSettings(
            self._folder / "chromium", limits.elements, limits.page_seconds, limits.action_seconds
        )
        if limits.stock:
            from components.environments.browser.surveys.stock_browsergym import StockSeat

            return StockSeat(self._playwright, settings)
        return Seat(self._browser, settings)

    def _start(self) -> None:
        from browsergym.core import _get_global_playwright
        from browsergym.core.constants import BROWSERGYM_ID_ATTRIBUTE

        self._seats.clear()
        self._playwright = _get_global_playwright()
        self._playwright.selectors.set_test_id_attribute(BROWSERGYM_ID_ATTRIBUTE)
        wrapper = write_wrapper(self._folder, self._settings.executable)
        if self._settings.stock:
            self._browser = self._playwright
            return
        self._browser = self._playwright.chromium.launch(
            headless=True,
            executable_path=str(wrapper),
            args=[f"--disable-features={','.join(FEATURES_OFF)}"],
            ignore_default_args=["--hide-scrollbars"],
            timeout=1000 * START_SECONDS,
        )

    def close(self) -> None:
        """End the browser."""
        for seat in self._seats.values():
            with contextlib.suppress(Exception):
                seat.close()
        with contextlib.suppress(Exception):
            if self._browser is not None and not self._settings.stock:
                self._browser.close()
        with contextlib.suppress(Exception):
            if self._playwright is not None:
                self._playwright.stop()


@dataclass(frozen=True)
class _Worker:
    process: Any
    pipe: Connection
    lifeline: Connection
    folder: Path
    held: IO[str]
    loads: int = 0
    started: bool = False


class Browsers:
    """Worker processes behind `load`, `step`, `probe` and `picture`; neighbouring rows share a browser."""

    def __init__(self, settings: PoolSettings) -> None:
        self._settings = settings
        self._workers: list[_Worker | None] = [None] * settings.size
        self._owner: dict[int, int] = {}
        self.replaced = 0
        """Browsers that were given up because they died or hung."""
        remove_abandoned_folders()
        self._finalizer = weakref.finalize(self, _end_all, self._workers)

    def load(self, specs: Mapping[int, Mapping[str, Any]]) -> dict[int, Seen | str]:
        """Start each row's task; a browser that dies of it is replaced once."""
        self._owner = {
            row: place * len(self._workers) // len(specs) for place, row in enumerate(sorted(specs))
        }
        for slot, worker in enumerate(self._workers):
            if worker and (worker.loads > LOADS_A_BROWSER or not worker.process.is_alive()):
                self._stop(slot)
        answers = self._ask("load", specs)
        lost = {row: specs[row] for row, answer in answers.items() if isinstance(answer, _Lost)}
        return answers | (self._ask("load", lost) if lost else {})

    def step(self, chosen: Mapping[int, str]) -> dict[int, Seen | str]:
        """One action for each row; what it sees, or an error text where infrastructure failed."""
        return self._ask("step", chosen)

    def probe(self, forks: Mapping[int, Fork]) -> dict[int, list[Seen] | str]:
        """What each of several actions would lead to. The rows stay where they are."""
        return self._ask("probe", forks)

    def picture(self, row: int) -> bytes:
        """What a row's page looks like, as a PNG. Raises EnvironmentFailure if the page cannot be drawn."""
        found = self._ask("picture", {row: None})[row]
        if not isinstance(found, bytes):
            raise EnvironmentFailure(f"There is no picture of row {row}: {found}")
        return found

    def processes(self) -> list[int]:
        """The ids of the worker processes that run."""
        return [worker.process.pid for worker in self._workers if worker]

    def close(self) -> None:
        """End all browsers. May be called twice."""
        self._finalizer()
        self._finalizer = weakref.finalize(self, _end_all, self._workers)

    def _ask(self, verb: str, rows: Mapping[int, Any]) -> dict[int, Any]:
        shares: dict[int, dict[int, Any]] = {}
        for row, payload in rows.items():
            shares.setdefault(self._owner[row], {})[row] = payload
        answers: dict[int, Any] = {}
        for slot, share in shares.items():
            try:
                self._worker(slot, verb, share).pipe.send((verb, share))
            except OSError as error:
                answers |= self._lost(slot, share, f"ended ({type(error).__name__})")
        waiting = {slot: {row for row in share if row not in answers} for slot, share in shares.items()}
        deadlines = {slot: self._deadline(slot) for slot in waiting}
        while waiting := {slot: left for slot, left in waiting.items() if left}:
            self._hear(waiting, deadlines, answers)
        return answers

    def _deadline(self, slot: int) -> float:
        """When a worker has been silent for too long; the first time it also has to start its browser."""
        worker = self._workers[slot]
        return (
            time.monotonic() + self._settings.patience + (0.0 if worker and worker.started else START_SECONDS)
        )

    def _hear(
        self, waiting: dict[int, set[int]], deadlines: dict[int, float], answers: dict[int, Any]
    ) -> None:
        """Take the answers that have come; give up those workers that died or whose time is over."""
        pipes: dict[Any, int] = {worker.pipe: slot for slot in waiting if (worker := self._workers[slot])}
        ready: list[Any] = wait(
            list(pipes), timeout=max(0.0, min(deadlines[slot] for slot in waiting) - time.monotonic())
        )
        for pipe in ready:
            slot = pipes[pipe]
            try:
                row, answer = pipe.recv()
            except (OSError, EOFError) as error:
                answers |= self._lost(slot, waiting.pop(slot), f"ended ({type(error).__name__})")
                continue
            if row != BEAT:
                answers[row] = answer
                waiting[slot].discard(row)
            if (worker := self._workers[slot]) and not worker.started:
                self._workers[slot] = replace(worker, started=True)
            deadlines[slot] = self._deadline(slot)
        for slot in [slot for slot in waiting if deadlines[slot] <= time.monotonic()]:
            answers |= self._lost(
                slot, waiting.pop(slot), f"did not answer for {self._settings.patience:.0f} seconds"
            )

    def _lost(self, slot: int, rows: Any, what: str) -> dict[int, Any]:
        self._stop(slot, gracefully=False)
        self.replaced += 1
        return {row: _Lost(f"The browser's process {what}.") for row in rows}

    def _worker(self, slot: int, verb: str, share: Mapping[int, Any]) -> _Worker:
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

    def _stop(self, slot: int, *, gracefully: bool = True) -> None:
        worker, self._workers[slot] = self._workers[slot], None
        if worker:
            _end(worker, gracefully)


class _Lost(str):
    """An error text that tells of a worker that is no more, not of one row."""

    __slots__ = ()


def _start_worker(slot: int, settings: PoolSettings) -> _Worker:
    folder = Path(tempfile.mkdtemp(prefix=PREFIX))
    held = (folder / HELD).open("w")
    fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
    ours, theirs = _CONTEXT.Pipe()
    kept, watched = _CONTEXT.Pipe()
    process = _CONTEXT.Process(
        target=_serve, args=(theirs, watched, str(folder), settings), daemon=True, name=f"browser-{slot}"
    )
    try:
        process.start()
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        held.close()
        raise
    theirs.close()
    watched.close()
    return _Worker(process, ours, kept, folder, held)


def _end_all(workers: list[_Worker | None]) -> None:
    for slot, worker in enumerate(workers):
        if worker:
            workers[slot] = None
            _end(worker, gracefully=True)


def _end(worker: _Worker, gracefully: bool) -> None:
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
    _until_none_left(lambda: started_by(worker.folder))
    shutil.rmtree(worker.folder, ignore_errors=True)
    worker.held.close()


def _until_none_left(left: Callable[[], list[psutil.Process]]) -> None:
    """Wait a moment for processes that are about to end; kill those that do not."""
    for attempt in range(50):
        still = left()
        if not still:
            return
        if attempt >= 2:
            for process in still:
                with contextlib.suppress(psutil.Error):
                    process.kill()
        time.sleep(0.05)


def started_by(folder: Path) -> list[psutil.Process]:
    """The processes that the worker of `folder` started and that still run.

    The driver and the browser carry the folder's name in their environment; the browser's helpers overwrite
    theirs, and are known by the session that the browser leads.
    """
    found, sessions = [], _sessions(folder)
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error, OSError):
            mine = process.environ().get(OWNER) == str(folder) or (
                "chrom" in process.name() and os.getsid(process.pid) in sessions
            )
            if mine and process.status() != psutil.STATUS_ZOMBIE:
                found.append(process)
    return found


def _sessions(folder: Path) -> set[int]:
    try:
        return {int(line) for line in (folder / STARTED).read_text().split()}
    except (OSError, ValueError):
        return set()


def remove_abandoned_folders(least_age_seconds: float = 3600.0) -> None:
    """Remove the folders of workers that were killed together with their owner: older than that, and
    nobody's.
    """
    for folder in Path(tempfile.gettempdir()).glob(f"{PREFIX}*"):
        with contextlib.suppress(OSError):
            if (
                time.time() - folder.stat().st_mtime > least_age_seconds
                and not _held(folder)
                and not started_by(folder)
            ):
                shutil.rmtree(folder, ignore_errors=True)


def _held(folder: Path) -> bool:
    """Whether the owner of a worker's folder lives: its browser may have died, or not have been started
    yet.
    """
    with contextlib.suppress(FileNotFoundError), (folder / HELD).open() as file:
        try:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
    return False
