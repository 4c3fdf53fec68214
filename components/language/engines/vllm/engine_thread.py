"""The thread that runs every vLLM of this process, in rounds: each advances by one step in turn.

A request joins the batch of its vLLM between two rounds, and its caller goes on as soon as it is complete,
whatever the other rows still generate.

Threads that play episodes are players (`engines/players.py`). A round has results for some of them. They
think during the next round, and their next requests join the one after it, neither sooner nor later. So which
requests are computed together depends on the requests alone and not on how fast a thread was: a run can be
repeated to the bit.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, TypeVar

import torch

from components.language.engines.vllm.library import process_state_kept

Answer = TypeVar("Answer")
_Call = tuple[Callable[[], Any], Future[Any]]


@dataclass(eq=False)
class _Batch:
    """The requests of one caller. `outputs` are the complete ones by the place of their request."""

    llm: Any
    prompts: Sequence[list[int]]
    parameters: Sequence[Any]
    adapters: Any
    player: int | None
    order: int
    future: Future[list[Any]] = field(default_factory=Future)
    outputs: dict[int, Any] = field(default_factory=dict)


class EngineThread:
    """Runs functions and requests in one thread of its own. Its methods may be called from any other thread.

    `rounds` counts the rounds so far, `steps` the steps of all vLLMs in them, and `rows` the requests in
    these steps: rows / steps is the mean size of a batch.
    """

    def __init__(self) -> None:
        self.rounds = 0
        self.steps = 0
        self.rows = 0
        self._changed = threading.Condition()
        self._calls: list[_Call] = []
        self._new: list[_Batch] = []
        self._abandoned: list[_Batch] = []
        self._thinking: set[int] = set()
        self._answered: set[int] = set()
        self._answered_before: set[int] = set()
        self._answer_rounds: dict[int, int] = {}
        self._running: dict[tuple[int, str], tuple[_Batch, int]] = {}
        self._numbers = itertools.count()
        self._local = threading.local()
        self._thread = threading.Thread(target=self._work, name="vllm", daemon=True)
        self._thread.start()

    def call(self, function: Callable[[], Answer]) -> Answer:
        """Run `function` between two rounds, and return what it returns or raise what it raises."""
        future: Future[Answer] = Future()
        with self._changed:
            self._calls.append((function, future))
            self._changed.notify_all()
        return future.result()

    def generate(
        self, llm: Any, prompts: Sequence[list[int]], parameters: Sequence[Any], adapters: Any = None
    ) -> list[Any]:
        """Generate with one vLLM, together with the requests of other threads; one output a prompt, in order.

        Args:
            llm: a `vllm.LLM` that was made in this thread (`call`).
            prompts: token ids.
            parameters: one `SamplingParams` a prompt.
            adapters: a `LoRARequest`, or None.
        """
        if not prompts:
            return []
        player = getattr(self._local, "player", None)
        batch = _Batch(llm, prompts, parameters, adapters, player, getattr(self._local, "order", -1))
        with self._changed:
            self._new.append(batch)
            if player is not None:
                self._thinking.discard(player)
            self._changed.notify_all()
        try:
            return batch.future.result()
        except KeyboardInterrupt:
            with self._changed:
                self._abandoned.append(batch)
                self._changed.notify_all()
            raise

    def expect(self, count: int) -> list[int]:
        """Numbers of `count` new players; no round begins before each has handed in a request, or left."""
        with self._changed:
            numbers = [next(self._numbers) for _ in range(count)]
            self._thinking.update(numbers)
        return numbers

    def wait_for_earlier(self, player: int) -> None:
        """Wait until the players that got their results in earlier rounds have handed in, or left.

        So what `player` takes next does not depend on the speed of the threads.
        """
        with self._changed:
            own = self._answer_rounds.get(player, -1)
            self._changed.wait_for(
                lambda: all(self._answer_rounds.get(other, -1) >= own for other in self._thinking)
            )

    def leave(self, players: Iterable[int]) -> None:
        """These players hand in nothing any more."""
        players = list(players)
        with self._changed:
            self._thinking.difference_update(players)
            for player in players:
                self._answer_rounds.pop(player, None)
            self._changed.notify_all()

    @contextmanager
    def player(self, number: int) -> Iterator[None]:
        """The calling thread is the player `number` within the block. `expect` comes first."""
        self._local.player = number
        try:
            yield
        finally:
            self._local.player = None
            self.leave([number])

    def set_order(self, order: int) -> None:
        """Of the players' requests for one round, those of the lowest order come first."""
        self._local.order = order

    def _work(self) -> None:
        torch.set_flush_denormal(True)
        while True:
            self._take_turn()

    def _take_turn(self) -> None:
        """Run the calls that have come in, or else a round.

        What it holds, weights among it, is freed before the next turn waits.
        """
        calls, batches, abandoned = self._wait_for_work()
        for batch in abandoned:
            self._drop(batch)
        for function, future in calls:
            _resolve(future, function)
        for batch in batches:
            self._begin(batch)
        if not calls:
            self._answered_before, self._answered = self._answered, set()
            self._step_all()

    def _wait_for_work(self) -> tuple[list[_Call], list[_Batch], list[_Batch]]:
        """The calls that have come in, or else the batches of the next round; and the abandoned ones.

        The players that got results in the last round but one are waited for; what those of the last round
        hand in waits for the round after. Where nothing is running, all players are waited for.
        """

        def is_ready() -> bool:
            awaited = self._thinking & self._answered_before if self._running else self._thinking
            return bool(self._calls or self._abandoned or (not awaited and (self._new or self._running)))

        with self._changed:
            self._changed.wait_for(is_ready)
            calls, self._calls = self._calls, []
            abandoned, self._abandoned = self._abandoned, []
            self._new = [batch for batch in self._new if batch not in abandoned]
            if calls or not (self._new or self._running):
                return calls, [], abandoned
            early = [b for b in self._new if self._running and b.player in self._answered]
            batches = [batch for batch in self._new if batch not in early]
            self._new = early
        return [], sorted(batches, key=lambda batch: batch.order), abandoned

    def _begin(self, batch: _Batch) -> None:
        """Add the requests of a batch to its vLLM."""
        try:
            prompts = [{"prompt_token_ids": tokens} for tokens in batch.prompts]
            names = batch.llm.enqueue(
                prompts, list(batch.parameters), lora_request=batch.adapters, use_tqdm=False
            )
        except Exception as error:
            self._fail(batch, error)
            return
        # vLLM adds random letters to a name; its output has the name without them.
        self._running |= {
            (id(batch.llm), name.rsplit("-", 1)[0]): (batch, place) for place, name in enumerate(names)
        }

    def _step_all(self) -> None:
        """One step of each vLLM that has requests."""
        self.rounds += bool(self._running)
        for llm in {id(batch.llm): batch.llm for batch, _ in self._running.values()}.values():
            batches = [batch for batch, _ in self._running.values() if batch.llm is llm]
            self.steps += 1
            self.rows += len(batches)
            try:
                with process_state_kept():
                    outputs = llm.llm_engine.step()
            except Exception as error:
                for batch in dict.fromkeys(batches):
                    self._fail(batch, error)
                continue
            for output in outputs:
                request = self._running.pop((id(llm), output.request_id), None) if output.finished else None
                if request is not None:
                    self._deliver(output, *request)

    def _deliver(self, output: Any, batch: _Batch, place: int) -> None:
        """Keep a complete output, and give all of a batch to its caller."""
        batch.outputs[place] = output
        if len(batch.outputs) == len(batch.prompts):
            self._wake(batch)
            batch.future.set_result([batch.outputs[place] for place in range(len(batch.prompts))])

    def _fail(self, batch: _Batch, error: Exception) -> None:
        """Raise `error` in the caller of a batch, and drop its requests."""
        self._drop(batch)
        self._wake(batch)
        batch.future.set_exception(error)

    def _wake(self, batch: _Batch) -> None:
        """The player of a batch, if it is of one, begins to think."""
        if batch.player is not None:
            with self._changed:
                self._thinking.add(batch.player)
                self._answered.add(batch.player)
                self._answer_rounds[batch.player] = self.rounds

    def _drop(self, batch: _Batch) -> None:
        keys = [key for key, (owner, _) in self._running.items() if owner is batch]
        for key in keys:
            del self._running[key]
        with contextlib.suppress(Exception):  # a vLLM that has failed
            batch.llm.llm_engine.abort_request([name for _, name in keys])


def _resolve(future: Future[Any], function: Callable[[], Any]) -> None:
    try:
        future.set_result(function())
    except BaseException as error:  # raised in the caller's thread
        future.set_exception(error)


@functools.cache
def engine_thread() -> EngineThread:
    """The engine thread of this process, started on first use."""
    return EngineThread()
