"""Players of an iteration's rollouts: this process, or several parallel processes with a world each.

Decoding token by token gains nothing from a second thread, but two processes with half of the rows each are
nearly twice as fast. Rows are split by their order alone and every share has its own random stream. The
rollouts therefore depend on the number of processes, but not on the number of cores.
"""

from __future__ import annotations

import multiprocessing
import pickle
import signal
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from itertools import pairwise
from typing import Any, Protocol, Self

import torch

from components.child_processes import end_with_parent
from components.environments.protocol import Environment
from components.errors import DreamGymError, TrainingError
from components.policy.policy import Policy
from components.policy.rollout import Rollout, Stamp, play
from components.records import Task, Transition


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


class Player(Protocol):
    """Plays batches of rollouts."""

    @property
    def interactions(self) -> int:
        """Number of steps of its worlds so far."""
        ...

    def play(
        self,
        policy: Policy,
        tasks: Sequence[Task],
        *,
        max_steps: int,
        temperature: float,
        seed: int,
        stamp: Stamp = Stamp(),
    ) -> list[Rollout]:
        """Return one rollout per task, in the order of `tasks`."""
        ...


class LocalPlayer:
    """Plays rollouts in this process."""

    def __init__(self, world: Environment) -> None:
        self.world = world

    @property
    def interactions(self) -> int:
        """Number of steps of the world so far."""
        return self.world.interactions

    def play(
        self,
        policy: Policy,
        tasks: Sequence[Task],
        *,
        max_steps: int,
        temperature: float,
        seed: int,
        stamp: Stamp = Stamp(),
    ) -> list[Rollout]:
        """Return one rollout per task; see `rollout.play`."""
        self.world.seed = seed  # type: ignore[attr-defined]
        return play(
            policy, self.world, tasks, max_steps=max_steps, temperature=temperature, seed=seed, stamp=stamp
        )


class DreamPlayer(Player, Protocol):
    """Plays rollouts in dreams, which count what they generate and remember transitions.

    Attributes:
        tokens: number of tokens that the dreams have generated so far.
        rejected: kind -> number of answers that the dreams rejected, if they count them.
    """

    @property
    def tokens(self) -> int: ...

    @property
    def rejected(self) -> Counter[str]: ...

    def remember(self, transitions: Sequence[Transition]) -> None:
        """Add `transitions` to the buffer of every dream."""
        ...


class LocalDreamPlayer(LocalPlayer):
    """Plays rollouts in one dream, in this process."""

    def __init__(self, dream: DreamWorld) -> None:
        super().__init__(dream)
        self.dream = dream

    @property
    def tokens(self) -> int:
        """Number of tokens that the dream has generated so far."""
        return self.dream.tokens

    @property
    def rejected(self) -> Counter[str]:
        """Kind -> number of answers that the dream rejected."""
        return Counter(_count_rejected(self.dream))

    def remember(self, transitions: Sequence[Transition]) -> None:
        """Add `transitions` to the dream's buffer."""
        self.dream.remember(transitions)


class WorkersPlayer(ABC):
    """Plays rollouts in several processes with a world each. Use as a context manager.

    Attributes:
        interactions: number of steps of all worlds so far.
        tokens: number of tokens that all worlds have generated so far.
        rejected: kind -> number of answers that the worlds rejected, if they count them.
    """

    def __init__(self, count: int) -> None:
        self.interactions = 0
        self.tokens = 0
        self.rejected = Counter[str]()
        self._count = count

    @abstractmethod
    def _ask(self, method: str, requests: Sequence[tuple[Any, ...]]) -> list[Any]:
        """Call a method of the first `len(requests)` processes' `DreamHost`s, and return their answers."""

    @abstractmethod
    def close(self) -> None:
        """Stop the processes. May be called twice."""

    def play(
        self,
        policy: Policy,
        tasks: Sequence[Task],
        *,
        max_steps: int,
        temperature: float,
        seed: int,
        stamp: Stamp = Stamp(),
    ) -> list[Rollout]:
        """Return one rollout per task; consecutive rows share a process, so groups mostly stay together."""
        options = {"max_steps": max_steps, "temperature": temperature, "stamp": stamp}
        count = min(self._count, len(tasks))
        bounds = [len(tasks) * place // count for place in range(count + 1)]
        shares = [list(tasks[start:end]) for start, end in pairwise(bounds)]
        pickled_policy = pickle.dumps(policy)  # bytes, because tensors would need shared memory
        requests = [
            (pickled_policy, share, options | {"seed": seed * count + place})
            for place, share in enumerate(shares)
        ]
        rollouts: list[Rollout] = []
        for answer in self._ask("play", requests):
            share_rollouts, interactions, world_tokens, policy_tokens, rejected = pickle.loads(answer)  # noqa: S301
            rollouts += share_rollouts
            self.interactions += interactions
            self.tokens += world_tokens
            policy.tokens += policy_tokens
            self.rejected.update(rejected)  # `update` adds, and keeps kinds that have not occurred
        return rollouts

    def remember(self, transitions: Sequence[Transition]) -> None:
        """Add `transitions` to the buffer of every world."""
        self._ask("remember", [(list(transitions),)] * self._count)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


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
        for pool in self._pools:
            pool.shutdown(cancel_futures=True)

    def _ask(self, method: str, requests: Sequence[tuple[Any, ...]]) -> list[Any]:
        """Call a method of one host per process, in order. All have answered before an error is raised."""
        try:
            pending = [
                pool.submit(_call_host, method, request)
                for pool, request in zip(self._pools, requests, strict=False)
            ]
            wait(pending)
            return [future.result() for future in pending]
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
        """Return, pickled: rollouts, and their numbers of world steps, world tokens, policy tokens and
        rejected answers.
        """
        world = self.world
        policy = pickle.loads(pickled_policy)  # noqa: S301
        interactions_before = world.interactions
        world_tokens_before = world.tokens
        policy_tokens_before = policy.tokens
        rejected_before = _count_rejected(world)
        world.seed = options["seed"]
        rollouts = play(policy, world, tasks, **options)
        rejected = {
            name: count - rejected_before.get(name, 0) for name, count in _count_rejected(world).items()
        }
        return pickle.dumps(
            (
                rollouts,
                world.interactions - interactions_before,
                world.tokens - world_tokens_before,
                policy.tokens - policy_tokens_before,
                rejected,
            )
        )


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


def _count_rejected(world: DreamWorld) -> dict[str, int]:
    """Return the world's counts of rejected answers so far; empty if it does not count them."""
    return dict(getattr(world, "rejected", {}))
