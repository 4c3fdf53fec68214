"""One dream shared by many sessions: requests within a few milliseconds of each other form one batch.

A session is a row of the dream. Rows join and leave at any time, and are at different steps of different
episodes. One thread does all the work of the dream, because neither its cache nor torch's settings may be
shared. The sessions wait for their answers in threads of their own. A batch is complete when every acquired
row has a request, or `gather_seconds` after its first request. Requests that come while a batch is computed
form the next one, so that batches are full under load.
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
"""Time that a batch waits for more rows: less than a tenth of the time of a step."""
LEAVING_SECONDS = 10.0
"""Time that a session waits for a row: OpenEnv admits the next session before it closes the leaving one."""
SEEDS = 2**31
CLOSING = "The dream is closed: its server is shutting down."
"""What a request is told that comes during the end of a server."""


@dataclass
class _BeginRequest:
    """Begin an episode of `task` in `row`."""

    row: int
    task: Task
    seed: int
    history: Sequence[tuple[str, str]] = ()
    answer: Future[str] = field(default_factory=Future)


@dataclass
class _StepRequest:
    """Take one step of the episode in `row`."""

    row: int
    action: str
    answer: Future[Step] = field(default_factory=Future)


@dataclass
class _EndRequest:
    """Forget the episode in `row`."""

    row: int


_Request = _BeginRequest | _StepRequest | _EndRequest


class SharedDream:
    """A dream with a thread of its own, and the rows that sessions acquire. All methods are thread-safe.

    `batches` and `steps` count the answered ones so far; their ratio is the mean size of a batch.
    """

    def __init__(
        self,
        dream: Dream,
        rows: int,
        *,
        around: Callable[[], AbstractContextManager[None]] = nullcontext,
        gather_seconds: float = GATHER_SECONDS,
        leaving_seconds: float = LEAVING_SECONDS,
        version: str = "",
    ) -> None:
        """Start the thread.

        Args:
            rows: most sessions with an episode at the same time.
            version: of model and data, which tells two servers' dreams apart.
            around: a context that the thread works in, for settings of torch that belong to a thread.
        """
        self.rows = rows
        self.version = version
        self.batches = 0
        self.steps = 0
        self._dream = dream
        self._around = around
        self._gather_seconds = gather_seconds
        self._leaving_seconds = leaving_seconds
        self._requests: queue.SimpleQueue[_Request | None] = queue.SimpleQueue()
        self._lock = threading.Condition()
        self._free_rows = list(range(rows))
        self._is_closed = False
        dream.open_rows(rows)
        self._thread = threading.Thread(target=self._answer_until_closed, name="dream", daemon=True)
        self._thread.start()

    def acquire_row(self) -> int:
        """A row for a session; waits for one to be released.

        Raises:
            ExperienceModelError: no row is released in time, or the dream is closed.
        """
        with self._lock:
            self._lock.wait_for(lambda: self._free_rows or self._is_closed, self._leaving_seconds)
            self._require_open()
            if not self._free_rows:
                raise ExperienceModelError(
                    f"All {self.rows} places in the dream are taken.",
                    next_step="Close another session first.",
                )
            return self._free_rows.pop()

    def release_row(self, row: int) -> None:
        """Forget the episode in `row`, and let another session acquire the row."""
        self._requests.put(_EndRequest(row))
        with self._lock:
            self._free_rows.append(row)
            self._lock.notify()

    def begin(self, row: int, task: Task, seed: int, history: Sequence[tuple[str, str]] = ()) -> str:
        """Begin an episode in `row`, after the steps of `history`; waits for its current state.

        Raises:
            DataError: `history` is longer than the model can read.
        """
        request = _BeginRequest(row, task, seed % SEEDS, history)
        self._submit(request)
        return request.answer.result()

    def step(self, row: int, action: str) -> Step:
        """Dream one step of the episode in `row`; waits for it.

        Raises:
            DataError: the episode has become too long for the model.
        """
        request = _StepRequest(row, action)
        self._submit(request)
        return request.answer.result()

    def close(self) -> None:
        """Answer all earlier requests, then end the thread. Later requests are refused. A second call does
        nothing.
        """
        with self._lock:
            was_closed = self._is_closed
            self._is_closed = True
            self._lock.notify_all()
        if not was_closed:
            self._requests.put(None)
        self._thread.join()
        self._dream.close()

    def _submit(self, request: _Request) -> None:
        with self._lock:
            self._require_open()
            self._requests.put(request)

    def _require_open(self) -> None:
        if self._is_closed:
            raise ExperienceModelError(CLOSING, next_step="Connect again later.")

    def _answer_until_closed(self) -> None:
        """Answer batches until `close`."""
        with self._around():
            is_last = False
            while not is_last:
                batch, is_last = self._gather()
                self._answer(batch)

    def _gather(self) -> tuple[list[_Request], bool]:
        """The requests of the next batch, and whether it is the last one."""
        batch: list[_Request] = []
        request = self._requests.get()
        deadline = time.monotonic() + self._gather_seconds
        while request is not None:
            batch.append(request)
            remaining_seconds = deadline - time.monotonic()
            try:
                if remaining_seconds > 0 and self._is_incomplete(batch):
                    request = self._requests.get(timeout=remaining_seconds)
                else:
                    request = self._requests.get_nowait()
            except queue.Empty:
                return batch, False
        return batch, True

    def _is_incomplete(self, batch: Sequence[_Request]) -> bool:
        """True while an acquired row has no request."""
        return len({request.row for request in batch}) < self.rows - len(self._free_rows)

    def _answer(self, batch: Sequence[_Request]) -> None:
        """Answer the requests in order; steps between two requests of a row form one step of the dream."""
        step_requests: list[_StepRequest] = []
        for request in batch:
            # The row may belong to another session by now, so its earlier step comes first.
            if any(earlier.row == request.row for earlier in step_requests):
                self._step(step_requests)
                step_requests = []
            if isinstance(request, _StepRequest):
                step_requests.append(request)
            elif isinstance(request, _BeginRequest):
                self._begin(request)
            else:
                self._dream.end_episode(request.row)
        if step_requests:
            self._step(step_requests)

    def _begin(self, request: _BeginRequest) -> None:
        try:
            state = self._dream.begin_episode(request.row, request.task, request.seed, request.history)
            request.answer.set_result(state)
        except Exception as error:  # raised in the session's thread; the other episodes go on
            request.answer.set_exception(error)

    def _step(self, requests: Sequence[_StepRequest]) -> None:
        """Step all rows at once. If one episode is too long, step each row alone."""
        actions: list[str | None] = [None] * self.rows
        for request in requests:
            actions[request.row] = request.action
        try:
            steps = self._dream.step(actions)
        except Exception as error:
            if isinstance(error, DataError) and len(requests) > 1:
                for request in requests:
                    self._step([request])
                return
            for request in requests:  # a bug ends the episodes of this batch, but not the server
                self._dream.end_episode(request.row)
                request.answer.set_exception(error)
            return
        self.batches += 1
        self.steps += len(requests)
        for request in requests:
            step = steps[request.row]
            assert step is not None, "a row with an action has a step"
            request.answer.set_result(step)
