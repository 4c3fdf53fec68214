"""Players of rollouts: their interface, and those that play in this process.

A player plays a batch at once (`play`), or begins it and hands it over later (`begin`). Batches that were
begun are played in the order in which they were begun, and what is remembered in between takes its place in
that order. A player's counters change when a batch is handed over, so they do not depend on how fast it was.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Protocol

import torch

from components.environments.protocol import Environment
from components.policy.policy import Policy
from components.policy.rollout import Rollout, play
from components.records import Task, Transition


@dataclass
class PlayedBatch:
    """Rollouts of one request, and what they took.

    Args:
        rollouts: one per task, in order.
        interactions: number of steps of the world.
        tokens: number of tokens that the world generated.
        rejected: kind -> number of answers that the world rejected.
        seconds: time in which they were played.
    """

    rollouts: list[Rollout]
    interactions: int
    tokens: int
    rejected: Counter[str]
    seconds: float


Begun = Callable[[], PlayedBatch]
"""Waits for a batch that was begun, counts it, and returns it; raises what playing raised."""


class Player(Protocol):
    """Plays batches of rollouts."""

    def play(self, policy: Policy, tasks: Sequence[Task], **options: Any) -> PlayedBatch:
        """Return one rollout per task, in the order of `tasks`. Args: options: those of `rollout.play`."""
        ...

    def begin(self, policy: Policy, tasks: Sequence[Task], **options: Any) -> Begun:
        """Begin to play while this process goes on; see `play`."""
        ...

    def close_begun(self) -> None:
        """End batches that were begun and that nobody takes, and wait until nothing is played."""
        ...


class DreamWorld(Environment, Protocol):
    """Interface of a world that runs in a separate process."""

    seed: int

    @property
    def tokens(self) -> int:
        """Number of tokens generated so far."""
        ...

    def remember(self, transitions: Sequence[Transition]) -> None:
        """Add transitions to the buffer that demonstrations are retrieved from."""
        ...


class DreamPlayer(Player, Protocol):
    """Plays rollouts in dreams, which count what they generate and remember transitions.

    Attributes:
        interactions: number of steps of the batches that were handed over.
        tokens: number of tokens that the dreams generated for them.
        rejected: kind -> number of answers that the dreams rejected, if they count them.
    """

    interactions: int
    tokens: int
    rejected: Counter[str]

    def remember(self, transitions: Sequence[Transition]) -> None:
        """Add `transitions` to the buffer of every dream, after the batches that were begun."""
        ...


class Counts:
    """Counters of the batches that were handed over; see `DreamPlayer`."""

    def __init__(self) -> None:
        self.interactions = 0
        self.tokens = 0
        self.rejected = Counter[str]()

    def count(self, batch: PlayedBatch) -> PlayedBatch:
        """Add what `batch` took, and return it."""
        self.interactions += batch.interactions
        self.tokens += batch.tokens
        self.rejected.update(batch.rejected)  # `update` adds, and keeps kinds that have not occurred
        return batch


class LocalPlayer(Counts):
    """Plays rollouts in this process; those that are begun, in one thread."""

    def __init__(self, world: Environment) -> None:
        super().__init__()
        self.world = world
        self.rejected.update(_rejected(world))
        self._thread: ThreadPoolExecutor | None = None
        self._begun: list[tuple[Policy, Future[PlayedBatch]]] = []
        self._remembering: list[Future[None]] = []

    def play(self, policy: Policy, tasks: Sequence[Task], **options: Any) -> PlayedBatch:
        """Return one rollout per task; see `rollout.play`."""
        for future in self._take_remembering():
            future.result()
        return self.count(self.play_uncounted(policy, tasks, options))

    def play_uncounted(self, policy: Policy, tasks: Sequence[Task], options: dict[str, Any]) -> PlayedBatch:
        """Play a batch, in whatever thread this is called."""
        return play_batch(policy, self.world, tasks, **options)

    def begin(self, policy: Policy, tasks: Sequence[Task], **options: Any) -> Begun:
        """Begin to play in a thread with as many threads of torch as this one."""
        remembering = self._take_remembering()
        begun = policy, self._in_thread(lambda: self.play_uncounted(policy, tasks, options))
        self._begun.append(begun)

        def take() -> PlayedBatch:
            batch = begun[1].result()
            for future in remembering:  # what had failed before it began
                future.result()
            self._begun.remove(begun)
            return self.count(batch)

        return take

    def close_begun(self) -> None:
        """End batches that were begun at their next step, and wait for it."""
        for policy, _ in self._begun:
            policy.is_interrupted = True
        self._begun.clear()
        if self._thread is not None:
            self._thread.shutdown(cancel_futures=True)
            self._thread = None

    def _take_remembering(self) -> list[Future[None]]:
        remembering, self._remembering = self._remembering, []
        return remembering

    def _in_thread(self, work: Callable[[], Any]) -> Future[Any]:
        if self._thread is None:
            threads = torch.get_num_threads()
            self._thread = ThreadPoolExecutor(1, "rollouts-ahead", _prepare_thread, (threads,))
        return self._thread.submit(work)


class LocalDreamPlayer(LocalPlayer):
    """Plays rollouts in one dream, in this process."""

    def __init__(self, dream: DreamWorld) -> None:
        super().__init__(dream)
        self.dream = dream

    def remember(self, transitions: Sequence[Transition]) -> None:
        """Add `transitions` to the dream's buffer, after the batches that were begun.

        An error is then raised with the next batch.
        """
        if self._begun or self._remembering:
            self._remembering.append(self._in_thread(lambda: self.dream.remember(transitions)))
        else:
            self.dream.remember(transitions)


def play_batch(policy: Policy, world: Any, tasks: Sequence[Task], **options: Any) -> PlayedBatch:
    """Play in `world` with `options["seed"]` as its seed too, and return what it took; see `rollout.play`."""
    interactions, tokens, rejected = world.interactions, getattr(world, "tokens", 0), _rejected(world)
    world.seed = options["seed"]
    started = time.monotonic()
    rollouts = play(policy, world, tasks, **options)
    return PlayedBatch(
        rollouts,
        world.interactions - interactions,
        getattr(world, "tokens", 0) - tokens,
        Counter({name: count - rejected.get(name, 0) for name, count in _rejected(world).items()}),
        time.monotonic() - started,
    )


def _rejected(world: Any) -> dict[str, int]:
    """Return the world's counts of rejected answers so far; empty if it does not count them."""
    return dict(getattr(world, "rejected", {}))


def _prepare_thread(thread_count: int) -> None:
    torch.set_num_threads(thread_count)
    torch.set_flush_denormal(True)
