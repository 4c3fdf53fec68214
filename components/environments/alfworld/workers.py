"""Run the engine in worker processes: it is slow, not thread-safe, and keeps about 2 MB of every game.

Each worker plays a share of the rows. A worker that dies fails its rows (recorded, not raised) and is
replaced. One that has loaded many games is replaced as well, which frees its memory.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import pickle
from collections.abc import Mapping, Sequence
from multiprocessing.connection import Connection
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias, Union

from components.child_processes import end_with_parent
from components.environments.alfworld.games import GameSpec
from components.errors import EnvironmentFailure

if TYPE_CHECKING:
    from components.environments.alfworld.engine import Game, Observation

Answer: TypeAlias = Union["Observation", str]
"""What a row answers: an observation, or an error text where infrastructure failed."""
_CONTEXT = multiprocessing.get_context("spawn")
_GAMES_A_WORKER = 2000


def _serve(pipe: Connection, cached: bool) -> None:
    """Load and step games in a worker process, until the pipe is closed."""
    from components.environments.alfworld.engine import Game

    end_with_parent()
    games: dict[int, Game] = {}
    while True:
        try:
            verb, rows = pipe.recv()
        except (EOFError, KeyboardInterrupt):
            return
        answers: dict[int, Any] = {}
        for row, payload in rows.items():
            try:
                if verb == "load":
                    games[row] = games.get(row) or Game(cached=cached)
                    games[row].load(payload)
                    answers[row] = games[row].reset()
                elif verb == "probe":
                    answers[row] = [_step_in_fork(games[row], command) for command in payload]
                else:
                    answers[row] = games[row].step(payload)
            except Exception as error:  # reported to the parent, which decides
                answers[row] = str(error) or type(error).__name__
        pipe.send(answers)


def _step_in_fork(game: Game, command: str) -> Any:
    """Return what `command` leads to, executed in a fork of this process: the game itself does not move."""
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        with contextlib.suppress(Exception), os.fdopen(write, "wb") as pipe:
            answer: Any
            try:
                answer = game.step(command)
            except Exception as error:
                answer = str(error) or type(error).__name__
            pickle.dump(answer, pipe)
        os._exit(0)
    os.close(write)
    with os.fdopen(read, "rb") as pipe:
        data = pipe.read()
    os.waitpid(child, 0)
    return pickle.loads(data) if data else "The copy of the engine ended without an answer."  # noqa: S301


class _WorkerEnded(str):
    """The error text of a row whose worker process has ended."""


class Workers:
    """A fixed number of engine processes behind `load`, `step` and `probe`.

    Neighbouring rows share a worker, so that episodes of one game share its translation.
    """

    def __init__(self, count: int, *, cached: bool = True) -> None:
        self._cached = cached
        self._slots: list[tuple[Any, Connection] | None] = [None] * count
        self._loaded_games = [0] * count
        self._slot_of_row: dict[int, int] = {}

    def load(self, games: Mapping[int, GameSpec | Path]) -> dict[int, Observation]:
        """Start an episode of each row's game. A worker that dies of it is replaced once.

        Raises:
            EnvironmentFailure: a game cannot be loaded; the message names it.
        """
        for slot, count in enumerate(self._loaded_games):
            if count > _GAMES_A_WORKER or not self._is_alive(slot):
                self._stop(slot)
        self._slot_of_row = {
            row: place * len(self._slots) // len(games) for place, row in enumerate(sorted(games))
        }
        answers = self._request("load", games)
        lost = {row: games[row] for row, answer in answers.items() if isinstance(answer, _WorkerEnded)}
        answers |= self._request("load", lost) if lost else {}
        for row, answer in answers.items():
            self._loaded_games[self._slot_of_row[row]] += 1
            if isinstance(answer, str):
                raise EnvironmentFailure(answer)
        return answers

    def step(self, commands: Mapping[int, str]) -> dict[int, Answer]:
        """Execute one command in each row."""
        return self._request("step", commands)

    def probe(self, commands: Mapping[int, Sequence[str]]) -> dict[int, list[Answer]]:
        """Execute several commands of each row in forks; no game moves."""
        answers = self._request("probe", commands)
        return {
            row: answer if isinstance(answer, list) else [answer] * len(commands[row])
            for row, answer in answers.items()
        }

    def close(self) -> None:
        """End all processes."""
        for slot in range(len(self._slots)):
            self._stop(slot)

    def _request(self, verb: str, rows: Mapping[int, Any]) -> dict[int, Any]:
        """Send each worker its share of `rows` and collect the answers of all."""
        shares: dict[int, dict[int, Any]] = {}
        for row, payload in rows.items():
            shares.setdefault(self._slot_of_row[row], {})[row] = payload
        answers: dict[int, Any] = {}
        waiting = []
        for slot, share in shares.items():
            try:
                pipe = self._pipe(slot)
                pipe.send((verb, share))
                waiting.append((slot, pipe, share))
            except (OSError, EOFError) as error:
                answers |= self._give_up(slot, share, error)
        for slot, pipe, share in waiting:
            try:
                answers |= pipe.recv()
            except (OSError, EOFError) as error:
                answers |= self._give_up(slot, share, error)
        return answers

    def _give_up(self, slot: int, share: Mapping[int, Any], error: Exception) -> dict[int, Any]:
        self._stop(slot)
        text = f"The engine's worker process ended ({type(error).__name__})."
        return {row: _WorkerEnded(text) for row in share}

    def _pipe(self, slot: int) -> Connection:
        """Return the pipe to the worker in `slot`, which is started if there is none."""
        current = self._slots[slot]
        if current is None:
            ours, theirs = _CONTEXT.Pipe()
            process = _CONTEXT.Process(
                target=_serve, args=(theirs, self._cached), daemon=True, name=f"alfworld-{slot}"
            )
            process.start()
            theirs.close()
            current = self._slots[slot] = (process, ours)
            self._loaded_games[slot] = 0
        return current[1]

    def _is_alive(self, slot: int) -> bool:
        current = self._slots[slot]
        return current is not None and current[0].is_alive()

    def _stop(self, slot: int) -> None:
        current = self._slots[slot]
        self._slots[slot] = None
        if current is not None:
            process, pipe = current
            pipe.close()
            process.join(timeout=2)
            if process.is_alive():
                process.kill()
                process.join()
