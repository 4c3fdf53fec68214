"""Jobs that generate with vLLM in threads of their own: none waits for another one's tokens."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Generic, TypeVar

import torch

from components.language.engines.vllm.engine_thread import engine_thread

Result = TypeVar("Result")


def run_players(jobs: Sequence[Callable[[], Result]], most: int) -> list[Result]:
    """Run the jobs, at most `most` at a time; returns their results in order.

    When a job ends, its thread begins the next one. After an error the jobs under way are finished, but no
    other one begins.

    Raises:
        Exception: the error of the first of the jobs that failed.
    """
    players = _Players(jobs)
    numbers = engine_thread().expect(min(most, len(jobs)))
    started: list[threading.Thread] = []
    try:
        for number in numbers:
            thread = threading.Thread(
                target=players.play, args=(number,), name=f"player-{number}", daemon=True
            )
            thread.start()
            started.append(thread)
        for thread in started:
            thread.join()
    finally:  # Ctrl-C, or no further thread could be started
        players.is_stopped = True
        engine_thread().leave(numbers[len(started) :])
    if players.errors:
        raise players.errors[min(players.errors)]
    return [players.results[number] for number in range(len(jobs))]


class _Players(Generic[Result]):
    """The jobs, their results and errors by number, and whether further jobs may begin."""

    def __init__(self, jobs: Sequence[Callable[[], Result]]) -> None:
        self.results: dict[int, Result] = {}
        self.errors: dict[int, BaseException] = {}
        self.is_stopped = False
        self._jobs = jobs
        self._next = 0
        self._lock = threading.Lock()
        self._thread_count = torch.get_num_threads()

    def play(self, player: int) -> None:
        """Do one job after the other as the player of this number."""
        torch.set_num_threads(self._thread_count)
        torch.set_flush_denormal(True)
        engine = engine_thread()
        with engine.player(player):
            while (number := self._take_number(player)) is not None:
                engine.set_order(number)
                try:
                    self.results[number] = self._jobs[number]()
                except BaseException as error:  # raised in the thread that called `run_players`
                    self.errors[number] = error
                    self.is_stopped = True

    def _take_number(self, player: int) -> int | None:
        engine_thread().wait_for_earlier(player)
        with self._lock:
            if self.is_stopped or self._next == len(self._jobs):
                return None
            self._next += 1
            return self._next - 1
