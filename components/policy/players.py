"""Who plays the rollouts of an iteration: this process, or several side by side, each with a world of its own.

Token by token decoding gains nothing from a second thread, but two processes with half of the rows each are nearly twice
as fast. The rows are split by their order alone and every share has its own random stream, so the same number of
processes gives the same rollouts, on however many cores.
"""

from __future__ import annotations

import multiprocessing
import pickle
from collections.abc import Callable, Sequence
from itertools import pairwise
from multiprocessing.connection import Connection
from typing import Any, Protocol

import torch

from components.environments.protocol import Environment
from components.errors import DreamGymError, TrainingError
from components.policy.policy import Policy
from components.policy.rollout import Rollout, Stamp, play
from components.records import Task, Transition

_CONTEXT = multiprocessing.get_context("spawn")


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
        self, policy: Policy, tasks: Sequence[Task], *, max_steps: int, temperature: float, seed: int, stamp: Stamp = Stamp()
    ) -> list[Rollout]:
        """One rollout a task, in the order of `tasks`."""
        ...


class OneProcess:
    """Plays in this process."""

    def __init__(self, world: Environment) -> None:
        self.world = world

    @property
    def interactions(self) -> int:
        """Steps of the world so far."""
        return self.world.interactions

    def play(
        self, policy: Policy, tasks: Sequence[Task], *, max_steps: int, temperature: float, seed: int, stamp: Stamp = Stamp()
    ) -> list[Rollout]:
        """See `rollout.play`."""
        self.world.seed = seed  # type: ignore[attr-defined]
        return play(policy, self.world, tasks, max_steps=max_steps, temperature=temperature, seed=seed, stamp=stamp)


class Processes:
    """`count` processes, each with a world that `open_world()` made there (it is pickled); use it as a context manager.

    `tokens` counts what worlds have generated.

    Raises:
        TrainingError: a process ended, or failed with something unexpected; its traceback is in the message.
    """

    def __init__(self, count: int, open_world: Callable[[], DreamWorld]) -> None:
        self.interactions = self.tokens = 0
        self._crew: list[tuple[Any, Connection]] = []
        for number in range(count):
            ours, theirs = _CONTEXT.Pipe()
            process = _CONTEXT.Process(target=_serve, args=(theirs, open_world), daemon=True, name=f"dream-{number}")
            process.start()
            theirs.close()
            self._crew.append((process, ours))

    def play(
        self, policy: Policy, tasks: Sequence[Task], *, max_steps: int, temperature: float, seed: int, stamp: Stamp = Stamp()
    ) -> list[Rollout]:
        """Neighbouring rows on one process, so that a group stays together where it can."""
        options = {"max_steps": max_steps, "temperature": temperature, "stamp": stamp}
        count = min(len(self._crew), len(tasks))
        bounds = [len(tasks) * place // count for place in range(count + 1)]
        shares = [list(tasks[start:end]) for start, end in pairwise(bounds)]
        requests = [("play", (policy, share, options | {"seed": seed * count + place})) for place, share in enumerate(shares)]
        rollouts: list[Rollout] = []
        for played, interactions, generated, written in self._ask(requests):
            rollouts += played
            self.interactions += interactions
            self.tokens += generated
            policy.tokens += written
        return rollouts

    def remember(self, transitions: Sequence[Transition]) -> None:
        """Every world takes in `transitions`."""
        self._ask([("remember", list(transitions))] * len(self._crew))

    def close(self) -> None:
        """End the processes. May be called twice."""
        for process, pipe in self._crew:
            pipe.close()
            process.join(timeout=2)
            if process.is_alive():
                process.kill()
                process.join()
        self._crew = []

    def __enter__(self) -> Processes:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _ask(self, requests: Sequence[tuple[str, Any]]) -> list[Any]:
        """One request for each of the first processes. As bytes: tensors sent as such would need shared memory."""
        answers = []
        try:
            for (_, pipe), request in zip(self._crew, requests, strict=False):
                pipe.send_bytes(pickle.dumps(request))
            for _, pipe in self._crew[: len(requests)]:
                answers.append(pickle.loads(pipe.recv_bytes()))  # noqa: S301
        except (OSError, EOFError) as error:
            found = f"A process that dreams has ended ({type(error).__name__})."
            next_step = "Type the same command again, perhaps with more free memory: it goes on from the last iteration."
            raise TrainingError(found, "Expected it to live as long as the stage.", next_step) from error
        for answer in answers:
            if isinstance(answer, Exception):
                raise answer
        return answers


def _serve(pipe: Connection, open_world: Callable[[], DreamWorld]) -> None:
    """A process's life: play and remember until the pipe closes."""
    torch.set_num_threads(1)
    torch.set_flush_denormal(True)
    world: DreamWorld | None = None
    while True:
        try:
            verb, payload = pickle.loads(pipe.recv_bytes())  # noqa: S301
        except (EOFError, OSError, KeyboardInterrupt):
            return
        answer: Any
        try:
            world = world or open_world()
            if verb == "remember":
                world.remember(payload)
                answer = None
            else:
                answer = _play(world, *payload)
        except DreamGymError as error:
            answer = error
        except Exception as error:
            import traceback

            answer = TrainingError(f"A process that dreams failed: {error!r}", next_step=traceback.format_exc())
        pipe.send_bytes(pickle.dumps(answer))


def _play(world: DreamWorld, policy: Policy, tasks: list[Task], options: dict[str, Any]) -> tuple[list[Rollout], int, int, int]:
    steps, generated, written = world.interactions, world.tokens, policy.tokens
    world.seed = options["seed"]
    rollouts = play(policy, world, tasks, **options)
    return rollouts, world.interactions - steps, world.tokens - generated, policy.tokens - written
