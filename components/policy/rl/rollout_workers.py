"""Who plays the rollouts of an iteration: this process, or several side by side, each with a world of its
own.

Token by token decoding gains nothing from a second thread, but two processes with half of the rows each are
nearly twice as fast. The rows are split by their order alone and every share has its own random stream, so
the same number of processes gives the same rollouts, on however many cores.
"""

from __future__ import annotations

import multiprocessing
import pickle
import signal
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from itertools import pairwise
from typing import Any, Protocol

import torch

from components.child_processes import end_with_parent
from components.environments.protocol import Environment
from components.errors import DreamGymError, TrainingError
from components.policy.policy import Policy
from components.policy.rollout import Rollout, Stamp, play
from components.records import Task, Transition


class DreamWorld(Environment, Protocol):
    """What a world must be to live in a process of its own."""

    seed: int

    @property
    def tokens(self) -> int:
        """Tokens generated so far."""
        ...

    def remember(self, transitions: Sequence[Transition]) -> None:
        """Take new transitions into the buffer that demonstrations come from."""
        ...


class Player(Protocol):
    """Plays batches of rollouts."""

    @property
    def interactions(self) -> int:
        """Steps of its worlds so far."""
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
        """One rollout a task, in the order of `tasks`."""
        ...


class LocalPlayer:
    """Plays in this process."""

    def __init__(self, world: Environment) -> None:
        self.world = world

    @property
    def interactions(self) -> int:
        """Steps of the world so far."""
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
        """See `rollout.play`."""
        self.world.seed = seed  # type: ignore[attr-defined]
        return play(
            policy, self.world, tasks, max_steps=max_steps, temperature=temperature, seed=seed, stamp=stamp
        )


class ProcessPoolPlayer:
    """`count` processes, each with a world that `open_world()` made there (it is pickled); use it as a
    context manager.

    `tokens` counts what worlds have generated, `rejected` by kind the answers that they did not believe,
    where they count them.

    Raises:
        TrainingError: a process ended, or failed with something unexpected.
    """

    def __init__(self, count: int, open_world: Callable[[], DreamWorld]) -> None:
        self.interactions = self.tokens = 0
        self.rejected = Counter[str]()
        # A pool of one process each: a world lives in one process, and no other can answer for it.
        context = multiprocessing.get_context("spawn")
        self._crew = [ProcessPoolExecutor(1, context, _begin, (open_world,)) for _ in range(count)]

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
        """Neighbouring rows on one process, so that a group stays together where it can."""
        options = {"max_steps": max_steps, "temperature": temperature, "stamp": stamp}
        count = min(len(self._crew), len(tasks))
        bounds = [len(tasks) * place // count for place in range(count + 1)]
        shares = [list(tasks[start:end]) for start, end in pairwise(bounds)]
        writer = pickle.dumps(policy)  # bytes: tensors sent as such would need shared memory
        rollouts: list[Rollout] = []
        for answer in self._ask(
            _play,
            [(writer, share, options | {"seed": seed * count + place}) for place, share in enumerate(shares)],
        ):
            played, interactions, generated, written, rejected = pickle.loads(answer)  # noqa: S301
            rollouts += played
            self.interactions += interactions
            self.tokens += generated
            policy.tokens += written
            self.rejected.update(rejected)  # `update` adds, and keeps kinds that have not occurred
        return rollouts

    def remember(self, transitions: Sequence[Transition]) -> None:
        """Every world takes in `transitions`."""
        self._ask(_remember, [(list(transitions),)] * len(self._crew))

    def close(self) -> None:
        """End the processes. May be called twice."""
        for member in self._crew:
            member.shutdown(cancel_futures=True)

    def __enter__(self) -> ProcessPoolPlayer:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _ask(self, question: Callable[..., Any], requests: Sequence[tuple[Any, ...]]) -> list[Any]:
        """What `question` answers to one request for each of the first processes; all have answered before an
        error is raised.
        """
        try:
            pending = [
                member.submit(question, *request)
                for member, request in zip(self._crew, requests, strict=False)
            ]
            wait(pending)
            return [future.result() for future in pending]
        except BrokenProcessPool as error:
            found = "A process that dreams has ended."
            next_step = (
                "Type the same command again, perhaps with more free memory: it goes on from the "
                "last iteration."
            )
            raise TrainingError(found, "Expected it to live as long as the stage.", next_step) from error
        except DreamGymError:
            raise
        except Exception as error:
            raise TrainingError(
                f"A process that dreams failed: {error!r}", next_step=str(error.__cause__ or "")
            ) from error


_open_world: Callable[[], DreamWorld]
_world: DreamWorld | None = None


def _begin(open_world: Callable[[], DreamWorld]) -> None:
    """A process's start. The parent alone answers to Ctrl-C; the world is opened with the first request,
    whose error is told.
    """
    global _open_world
    end_with_parent()
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    torch.set_num_threads(1)
    torch.set_flush_denormal(True)
    _open_world = open_world


def _opened() -> DreamWorld:
    global _world
    _world = _world or _open_world()
    return _world


def _remember(transitions: Sequence[Transition]) -> None:
    _opened().remember(transitions)


def _play(writer: bytes, tasks: list[Task], options: dict[str, Any]) -> bytes:
    """Rollouts, then steps of the world, tokens of the world, tokens of the policy that they took, and
    answers that the world rejected.
    """
    world, policy = _opened(), pickle.loads(writer)  # noqa: S301
    steps, generated, written, before = world.interactions, world.tokens, policy.tokens, _rejected(world)
    world.seed = options["seed"]
    rollouts = play(policy, world, tasks, **options)
    rejected = {name: count - before.get(name, 0) for name, count in _rejected(world).items()}
    return pickle.dumps(
        (rollouts, world.interactions - steps, world.tokens - generated, policy.tokens - written, rejected)
    )


def _rejected(world: DreamWorld) -> dict[str, int]:
    """The world's counts so far; none of a world that keeps none."""
    return dict(getattr(world, "rejected", {}))
