"""Players with several parallel processes, each with a world of its own.

Decoding token by token gains nothing from a second thread, but two processes with half of the rows each are
nearly twice as fast. Rows are split by their order alone and every share has its own random stream. The
rollouts therefore depend on the number of processes, but not on the number of cores.

Each process does what it is asked in order. So one that has played its share of a batch goes on with its
share of the next batch that was begun, and waits for no other process.
"""

from __future__ import annotations

import multiprocessing
import pickle
import signal
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ProcessPoolExecutor, ThreadPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from itertools import pairwise
from typing import Any, Self

import torch

from components.child_processes import end_with_parent
from components.errors import DreamGymError, TrainingError
from components.policy.policy import Policy
from components.policy.rl.players.player import Begun, Counts, DreamWorld, PlayedBatch, play_batch
from components.records import Task, Transition


class WorkersPlayer(Counts, ABC):
    """Plays rollouts in several processes with a world each. Use as a context manager."""

    def __init__(self, count: int) -> None:
        super().__init__()
        self._lines = _lines(count)
        self._remembering: list[Future[Any]] = []

    @abstractmethod
    def _ask(self, place: int, method: str, arguments: tuple[Any, ...]) -> Any:
        """Call a method of the `DreamHost` of one process, and return its answer."""

    def close(self) -> None:
        """Stop the processes. May be called twice."""
        self.close_begun()

    def play(self, policy: Policy, tasks: Sequence[Task], **options: Any) -> PlayedBatch:
        """Return one rollout per task; consecutive rows share a process, so groups mostly stay together."""
        return self.begin(policy, tasks, **options)()

    def begin(self, policy: Policy, tasks: Sequence[Task], **options: Any) -> Begun:
        """Ask every process for its share, behind what it was asked before."""
        count = min(len(self._lines), len(tasks))
        bounds = [len(tasks) * place // count for place in range(count + 1)]
        pickled_policy = pickle.dumps(policy)  # bytes, because tensors would need shared memory
        shares = [
            self._submit(
                place,
                "play",
                (pickled_policy, list(tasks[start:end]), options | {"seed": options["seed"] * count + place}),
            )
            for place, (start, end) in enumerate(pairwise(bounds))
        ]

        remembering, self._remembering = self._remembering, []

        def take() -> PlayedBatch:
            wait([*remembering, *shares])  # all have answered before an error is raised
            for future in remembering:
                future.result()
            answers = [pickle.loads(share.result()) for share in shares]  # noqa: S301
            policy.tokens += sum(policy_tokens for _, policy_tokens in answers)
            return self.count(_joined([batch for batch, _ in answers]))

        return take

    def remember(self, transitions: Sequence[Transition]) -> None:
        """Add `transitions` to the buffer of every world, behind what its process was asked before.

        An error is raised with the next batch.
        """
        arguments = (list(transitions),)
        self._remembering += [self._submit(place, "remember", arguments) for place in range(len(self._lines))]

    def close_begun(self) -> None:
        """Leave out what no process has begun, and wait for the rest."""
        for line in self._lines:
            line.shutdown(cancel_futures=True)
        self._lines = _lines(len(self._lines))

    def _submit(self, place: int, method: str, arguments: tuple[Any, ...]) -> Future[Any]:
        return self._lines[place].submit(self._ask, place, method, arguments)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _lines(count: int) -> list[ThreadPoolExecutor]:
    """Return a thread for each process, which waits for its answers in the order in which it was asked."""
    return [ThreadPoolExecutor(1, f"rollout-worker-{place}") for place in range(count)]


def _joined(shares: Sequence[PlayedBatch]) -> PlayedBatch:
    rejected = Counter[str]()
    for share in shares:
        rejected.update(share.rejected)
    return PlayedBatch(
        [rollout for share in shares for rollout in share.rollouts],
        sum(share.interactions for share in shares),
        sum(share.tokens for share in shares),
        rejected,
        max(share.seconds for share in shares),
    )


class ProcessPoolPlayer(WorkersPlayer):
    """Plays rollouts in `count` processes of this machine, each with a world from `open_world()`.

    `open_world` is pickled and called in each process. All methods raise TrainingError if a process ended or
    failed unexpectedly.
    """

    def __init__(self, count: int, open_world: Callable[[], DreamWorld]) -> None:
        super().__init__(count)
        # One pool per process, because a request must reach the process that holds the world.
        context = multiprocessing.get_context("spawn")
        self._pools = [ProcessPoolExecutor(1, context, _start_process, (open_world,)) for _ in range(count)]

    def close(self) -> None:
        """Stop the processes. May be called twice."""
        super().close()
        for pool in self._pools:
            pool.shutdown(cancel_futures=True)

    def _ask(self, place: int, method: str, arguments: tuple[Any, ...]) -> Any:
        try:
            return self._pools[place].submit(_call_host, method, arguments).result()
        except BrokenProcessPool as error:
            raise TrainingError(
                "A rollout worker exited unexpectedly.",
                "Expected it to run until the end of the stage.",
                "Type the same command again, perhaps with more free memory: it continues from the last "
                "iteration.",
            ) from error
        except DreamGymError:
            raise
        except Exception as error:
            raise TrainingError(
                f"A rollout worker failed: {error!r}", next_step=str(error.__cause__ or "")
            ) from error


class DreamHost:
    """A worker's dream. It is opened by the first request, which so reports an error of `open_world`."""

    def __init__(self, open_world: Callable[[], DreamWorld]) -> None:
        self._open_world = open_world
        self._world: DreamWorld | None = None

    @property
    def world(self) -> DreamWorld:
        """The dream."""
        self._world = self._world or self._open_world()
        return self._world

    def remember(self, transitions: Sequence[Transition]) -> None:
        """Add `transitions` to the dream's buffer."""
        self.world.remember(transitions)

    def play(self, pickled_policy: bytes, tasks: list[Task], options: dict[str, Any]) -> bytes:
        """Return, pickled: the batch of rollouts, and the number of tokens of the policy."""
        policy = pickle.loads(pickled_policy)  # noqa: S301
        policy_tokens_before = policy.tokens
        batch = play_batch(policy, self.world, tasks, **options)
        return pickle.dumps((batch, policy.tokens - policy_tokens_before))


_host: DreamHost


def _start_process(open_world: Callable[[], DreamWorld]) -> None:
    """Prepare a process. Only the parent handles Ctrl-C."""
    global _host
    end_with_parent()
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    torch.set_num_threads(1)
    torch.set_flush_denormal(True)
    _host = DreamHost(open_world)


def _call_host(method: str, arguments: tuple[Any, ...]) -> Any:
    return getattr(_host, method)(*arguments)
