"""The engine in worker processes: it is slow, not thread-safe, and keeps about 2 MB of every game it has
loaded.

Each worker plays a share of the rows. A worker that dies fails its rows (recorded, not raised) and is
replaced; one that has loaded many games is replaced too, which gives its memory back.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import pickle
from collections.abc import Mapping, Sequence
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from components.child_processes import end_with_parent
from components.environments.alfworld.games import World
from components.errors import EnvironmentFailure

_CONTEXT = multiprocessing.get_context("spawn")
_GAMES_A_WORKER = 2000


def _serve(pipe: Connection, cached: bool) -> None:
    """A worker's life: load and step games until told to stop."""
    from components.environments.alfworld.engine import Game, Observation

    end_with_parent()
    games: dict[int, Game] = {}
    while True:
        try:
            verb, rows = pipe.recv()
        except (EOFError, KeyboardInterrupt):
            return
        answers: dict[int, Observation | str | list[Any]] = {}
        for row, payload in rows.items():
            try:
                if verb == "load":
                    games[row] = games.get(row) or Game(cached=cached)
                    games[row].load(payload)
                    answers[row] = games[row].reset()
                elif verb == "probe":
                    answers[row] = [_forked(games[row], command) for command in payload]
                else:
                    answers[row] = games[row].step(payload)
            except Exception as error:  # reported to the parent, which decides
                answers[row] = str(error) or type(error).__name__
        pipe.send(answers)


def _forked(game: Any, command: str) -> Any:
    """What `command` would lead to, found out by a copy of this process: the game itself stays where it
    is.
    """
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        with contextlib.suppress(Exception), os.fdopen(write, "wb") as pipe:
            try:
                answer = game.step(command)
            except Exception as error:
                answer = str(error) or type(error).__name__
            pickle.dump(answer, pipe)
        os._exit(0)
    os.close(write)
    with os.fdopen(read, "rb") as pipe:
        written = pipe.read()
    os.waitpid(child, 0)
    return pickle.loads(written) if written else "The copy of the engine ended without an answer."  # noqa: S301


class _Lost(str):
    """Why a row has no answer: its worker is no more."""


class Workers:
    """A fixed number of engine processes behind `load` and `step`, neighbouring rows on one worker, so that
    episodes of one game share its translation."""

    def __init__(self, count: int, *, cached: bool = True) -> None:
        self._cached = cached
        self._slots: list[tuple[Any, Connection] | None] = [None] * count
        self._loaded = [0] * count
        self._owner: dict[int, int] = {}

    def load(self, games: Mapping[int, World | Path]) -> dict[int, Any]:
        """Start an episode of each row's game; row -> Observation. A worker that dies of it is replaced once.

        Raises:
            EnvironmentFailure: a game cannot be loaded; the message names it.
        """
        for slot, count in enumerate(self._loaded):
            if count > _GAMES_A_WORKER or not self._alive(slot):
                self._stop(slot)
        self._owner = {row: place * len(self._slots) // len(games) for place, row in enumerate(sorted(games))}
        answers = self._ask("load", games)
        lost = {row: games[row] for row, answer in answers.items() if isinstance(answer, _Lost)}
        answers |= self._ask("load", lost) if lost else {}
        for row, answer in answers.items():
            self._loaded[self._owner[row]] += 1
            if isinstance(answer, str):
                raise EnvironmentFailure(answer)
        return answers

    def step(self, commands: Mapping[int, str]) -> dict[int, Any]:
        """One command for each row; row -> Observation, or an error text where infrastructure failed."""
        return self._ask("step", commands)

    def probe(self, commands: Mapping[int, Sequence[str]]) -> dict[int, Any]:
        """What each of several commands would lead to; row -> a list of Observations or error texts. No game
        moves.
        """
        answers = self._ask("probe", commands)
        return {
            row: found if isinstance(found, list) else [found] * len(commands[row])
            for row, found in answers.items()
        }

    def close(self) -> None:
        """End all processes."""
        for slot in range(len(self._slots)):
            self._stop(slot)

    def _ask(self, verb: str, rows: Mapping[int, Any]) -> dict[int, Any]:
        shares: dict[int, dict[int, Any]] = {}
        for row, payload in rows.items():
            shares.setdefault(self._owner[row], {})[row] = payload
        answers: dict[int, Any] = {}
        waiting = []
        for slot, share in shares.items():
            try:
                pipe = self._pipe(slot)
                pipe.send((verb, share))
                waiting.append((slot, pipe, share))
            except (OSError, EOFError) as error:
                answers |= self._lost(slot, share, error)
        for slot, pipe, share in waiting:
            try:
                answers |= pipe.recv()
            except (OSError, EOFError) as error:
                answers |= self._lost(slot, share, error)
        return answers

    def _lost(self, slot: int, share: Mapping[int, Any], error: Exception) -> dict[int, Any]:
        self._stop(slot)
        return {row: _Lost(f"The engine's worker process ended ({type(error).__name__}).") for row in share}

    def _pipe(self, slot: int) -> Connection:
        current = self._slots[slot]
        if current is None:
            ours, theirs = _CONTEXT.Pipe()
            process = _CONTEXT.Process(
                target=_serve, args=(theirs, self._cached), daemon=True, name=f"alfworld-{slot}"
            )
            process.start()
            theirs.close()
            current = self._slots[slot] = (process, ours)
            self._loaded[slot] = 0
        return current[1]

    def _alive(self, slot: int) -> bool:
        current = self._slots[slot]
        return current is not None and current[0].is_alive()

    def _stop(self, slot: int) -> None:
        current, self._slots[slot] = self._slots[slot], None
        if current is not None:
            process, pipe = current
            pipe.close()
            process.join(timeout=2)
            if process.is_alive():
                process.kill()
                process.join()
