"""One dream that many sessions share: what they ask within a few milliseconds of each other is answered as
one batch.

A session is a row of the dream. Rows join and leave at any time, and stand at different steps of different
episodes. All of the dream's work is done by one thread, since neither its cache nor torch's settings may be
shared; the sessions wait for their answers in threads of their own. A batch is complete when every row that
is taken has asked, or `gather_seconds` after the first one did; what comes while a batch is answered is the
next batch, so under load they fill by themselves.
"""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field

from components.environments.protocol import Step
from components.errors import DataError, ExperienceModelError
from components.experience.dream import Dream
from components.records import Task

GATHER_SECONDS = 0.002
"""How long a batch waits for more rows: less than a tenth of what a step takes."""
LEAVING_SECONDS = 10.0
"""How long a session waits for a row: OpenEnv lets the next one in before it has closed the one that leaves.
"""
SEEDS = 2**31


@dataclass
class _Request:
    """What a row asks: to begin `task`, to take a step with `action`, or, with neither, to be forgotten."""

    row: int
    task: Task | None = None
    seed: int = 0
    action: str | None = None
    answer: Future[str | Step] = field(default_factory=Future)


class SharedDream:
    """A dream with a thread of its own, and the rows that sessions take. All methods may be called from any
    thread.

    `batches` and `steps` count what was answered so far: their ratio says how full the batches are.
    """

    def __init__(
        self,
        dream: Dream,
        rows: int,
        *,
        around: Callable[[], AbstractContextManager[None]] = nullcontext,
        gather_seconds: float = GATHER_SECONDS,
        leaving_seconds: float = LEAVING_SECONDS,
    ) -> None:
        """Start the thread.

        Args:
            rows: most sessions with an episode at the same time.
            around: entered by the thread for as long as it works, for settings of torch that belong to a
                thread.
        """
        self.rows, self.batches, self.steps = rows, 0, 0
        self._dream, self._around = dream, around
        self._gather_seconds, self._leaving_seconds = gather_seconds, leaving_seconds
        self._requests: queue.SimpleQueue[_Request | None] = queue.SimpleQueue()
        self._lock, self._free, self._closed = threading.Condition(), list(range(rows)), False
        dream.vacate(rows)
        self._thread = threading.Thread(target=self._work, name="dream", daemon=True)
        self._thread.start()

    def take(self) -> int:
        """A row for a session; waits for one that leaves. Raises ExperienceModelError if all stay taken or
        the dream closes.
        """
        with self._lock:
            self._lock.wait_for(lambda: self._free or self._closed, self._leaving_seconds)
            self._refuse_if_closed()
            if not self._free:
                raise ExperienceModelError(
                    f"All {self.rows} places in the dream are taken.",
                    next_step="Close another session first.",
                )
            return self._free.pop()

    def give_back(self, row: int) -> None:
        """The session of `row` is over: its episode is forgotten."""
        self._requests.put(_Request(row))
        with self._lock:
            self._free.append(row)
            self._lock.notify()

    def begin(self, row: int, task: Task, seed: int) -> str:
        """Begin an episode in `row`; waits for its initial state."""
        return self._ask(_Request(row, task=task, seed=seed % SEEDS))  # type: ignore[return-value]

    def step(self, row: int, action: str) -> Step:
        """Dream one step of the episode in `row`; waits for it.

        Raises:
            DataError: the episode has become too long for the model.
        """
        return self._ask(_Request(row, action=action))  # type: ignore[return-value]

    def close(self) -> None:
        """Answer what was asked before, then end the thread. Whoever asks later is refused. May be called
        twice.
        """
        with self._lock:
            already, self._closed = self._closed, True
            self._lock.notify_all()
        if not already:
            self._requests.put(None)
        self._thread.join()
        self._dream.close()

    def _ask(self, request: _Request) -> str | Step:
        with self._lock:
            self._refuse_if_closed()
            self._requests.put(request)
        return request.answer.result()

    def _refuse_if_closed(self) -> None:
        if self._closed:
            raise ExperienceModelError(
                "The dream is closed: its server is shutting down.", next_step="Connect again later."
            )

    def _work(self) -> None:
        with self._around():
            last = False
            while not last:
                batch, last = self._gather()
                self._answer(batch)

    def _gather(self) -> tuple[list[_Request], bool]:
        """The requests of the next batch, and whether they are the last."""
        batch: list[_Request] = []
        first = self._requests.get()
        deadline = time.monotonic() + self._gather_seconds
        while first is not None:
            batch.append(first)
            left = deadline - time.monotonic()
            try:
                first = (
                    self._requests.get(timeout=left)
                    if left > 0 and self._awaited(batch)
                    else self._requests.get_nowait()
                )
            except queue.Empty:
                return batch, False
        return batch, True

    def _awaited(self, batch: Sequence[_Request]) -> bool:
        """True while a row that is taken has not asked."""
        return len({request.row for request in batch}) < self.rows - len(self._free)

    def _answer(self, batch: Sequence[_Request]) -> None:
        asked: list[_Request] = []
        for request in batch:
            if any(
                other.row == request.row for other in asked
            ):  # in their order: the row may be another session's by now
                self._step(asked)
                asked = []
            if request.action is not None:
                asked.append(request)
            elif request.task is None:
                self._dream.leave(request.row)
            else:
                self._settle(request, lambda it=request: self._dream.enter(it.row, it.task, it.seed))  # type: ignore[misc]
        if asked:
            self._step(asked)

    def _step(self, asked: Sequence[_Request]) -> None:
        """Step all of them together; where one of them is too long, each for itself."""
        actions: list[str | None] = [None] * self.rows
        for request in asked:
            actions[request.row] = request.action
        try:
            steps = self._dream.step(actions)
        except Exception as error:
            if isinstance(error, DataError) and len(asked) > 1:
                for request in asked:
                    self._step([request])
                return
            for request in asked:  # a bug ends the episodes of this batch, and not the server
                self._dream.leave(request.row)
                request.answer.set_exception(error)
            return
        self.batches, self.steps = self.batches + 1, self.steps + len(asked)
        for request in asked:
            step = steps[request.row]
            assert step is not None
            request.answer.set_result(step)

    def _settle(self, request: _Request, make: Callable[[], str]) -> None:
        try:
            request.answer.set_result(make())
        except Exception as error:  # told to the one who asked; the others' episodes go on
            request.answer.set_exception(error)
