"""Worker processes on a Ray cluster: each holds an object of its own and calls its methods.

Ray is imported where it is used, so a run without a cluster needs no Ray.
"""

from __future__ import annotations

import errno
import os
import platform
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from components.cluster.installation import Installation, require_same, this_installation
from components.errors import ClusterError, DreamGymError

LOCAL = "local"
"""The address of a cluster of this machine alone, which ends with this process."""
MOST_LOSSES = 3
"""Losses of one process in one request after which it is still replaced."""
START_SECONDS = 300.0
"""In which a worker must have started: it imports torch, and perhaps from a slow disk."""


def connect(address: str, workers: int) -> None:
    """Connect this process to a cluster; a second call does nothing.

    Args:
        address: `local`, `auto` for the cluster that was started on this machine, `HOST:PORT`, or
            `ray://HOST:PORT`.
        workers: number of processes that are wanted at the same time, of one core each.

    Raises:
        ClusterError: Ray is not installed, no cluster answers, or it has fewer cores.
    """
    ray = _import_ray()
    if not ray.is_initialized():
        is_local = address == LOCAL
        options: dict[str, Any] = {"num_cpus": max(workers, os.cpu_count() or 1)} if is_local else {}
        if is_local:
            options["include_dashboard"] = False
        try:
            ray.init(
                address="local" if is_local else address,
                log_to_driver=False,
                logging_level="ERROR",
                **options,
            )
        except Exception as error:
            raise ClusterError(
                f"No Ray cluster answers at {address!r}: {_first_line(error)}",
                "Expected `local`, `auto`, HOST:PORT or ray://HOST:PORT.",
                "Start one: `ray start --head` here, and `ray start --address HOST:6379` on each other "
                "machine, with the same RAY_AUTH_MODE and RAY_AUTH_TOKEN; or set cluster=local.",
            ) from error
    cores = int(ray.cluster_resources().get("CPU", 0))
    if cores < workers and address != LOCAL:  # there it is a number that the first call gave
        raise ClusterError(
            f"The Ray cluster has {cores} cores, and {workers} workers are wanted.",
            next_step="Lower environment.workers and rl.dream.processes, or add machines: "
            "ray start --address HOST:6379",
        )


class WorkerLost(Exception):
    """A worker process, or its machine, has ended."""


class RayWorkers:
    """`count` processes on a Ray cluster, each with an object from `make()`. Close it after use.

    A lost process is not replaced until `restart` is called, since only its user knows what it must be told
    again.
    """

    def __init__(self, address: str, count: int, make: Callable[[], Any]) -> None:
        """Start the processes.

        Args:
            address: see `connect`.
            make: pickled, and called in each process.

        Raises:
            ClusterError: see `connect`; or a worker has other code or packages than this process.
        """
        connect(address, count)
        self._make = make
        self._actors: list[Any] = [None] * count
        for place in range(count):
            self._start(place)
        try:
            self._await_start(range(count))
        except WorkerLost as error:
            raise _failed(error) from None

    def __len__(self) -> int:
        return len(self._actors)

    def call(self, requests: Mapping[int, tuple[str, tuple[Any, ...]]]) -> dict[int, Any]:
        """Call a method of the objects in several processes at the same time.

        Args:
            requests: place of the process -> name of the method and its arguments.

        Returns:
            place -> the answer, or a WorkerLost if the process has ended.

        Raises:
            DreamGymError: the first one that a method raised, once all have answered.
            ClusterError: a method raised something else.
        """
        ray = _import_ray()
        pending = {
            place: self._actors[place].call.remote(method, arguments)
            for place, (method, arguments) in requests.items()
        }
        answers: dict[int, Any] = {}
        errors: list[BaseException] = []
        for place, reference in pending.items():
            try:
                answers[place] = ray.get(reference)
            except ray.exceptions.RayTaskError as error:
                errors.append(error.cause if isinstance(error.cause, DreamGymError) else _failed(error))
            except _losses(ray):
                answers[place] = WorkerLost(f"worker {place}")
            except ray.exceptions.RayError as error:
                errors.append(_failed(error))
        if errors:
            raise errors[0]
        return answers

    def call_surely(
        self, requests: Mapping[int, tuple[str, tuple[Any, ...]]], prepare: Callable[[int], None]
    ) -> dict[int, Any]:
        """Return the answers as `call` does; a lost process is replaced and asked again.

        Args:
            prepare: called with the place of each new process before it is asked.

        Raises:
            ClusterError: a process was lost more than `MOST_LOSSES` times.
        """
        answers: dict[int, Any] = {}
        pending = dict(requests)
        for _ in range(1 + MOST_LOSSES):
            answers |= self.call(pending)
            pending = {place: requests[place] for place in pending if isinstance(answers[place], WorkerLost)}
            if not pending:
                return answers
            for place in pending:
                try:
                    self.restart(place)
                except WorkerLost:
                    continue  # asked again all the same, which is a further loss
                prepare(place)
        raise ClusterError(
            f"A worker of the Ray cluster was lost {1 + MOST_LOSSES} times in one request.",
            next_step="See Ray's logs of that machine (`ray logs`); then type the same command again: it "
            "continues from its last checkpoint.",
        )

    def restart(self, place: int) -> None:
        """Start the process at `place` anew, with a new object.

        Raises:
            ClusterError: no process starts there.
            WorkerLost: the new one ended at once.
        """
        _import_ray().kill(self._actors[place])
        self._start(place)
        self._await_start([place])

    def process_ids(self) -> list[tuple[str, int]]:
        """Return the machine and the process id of each worker."""
        answers = self.call(dict.fromkeys(range(len(self)), ("", ())))
        return [answer for answer in answers.values() if not isinstance(answer, WorkerLost)]

    def close(self) -> None:
        """End the processes. May be called twice."""
        ray = _import_ray()
        for actor in self._actors:
            if actor is not None and ray.is_initialized():
                ray.kill(actor)
        self._actors = []

    def _start(self, place: int) -> None:
        ray = _import_ray()
        # No concurrency, and no restart by Ray: a new process would have lost its object's state unnoticed.
        # Without `num_cpus` an actor is placed by cores and reserves none: environments and rollouts that
        # take turns do not wait for each other's cores.
        remote = ray.remote(max_restarts=0, max_task_retries=0, scheduling_strategy="SPREAD")(_Worker)
        self._actors[place] = remote.remote(self._make, this_installation(), str(Path.cwd()))

    def _await_start(self, places: Any) -> None:
        ray = _import_ray()
        references = [self._actors[place].call.remote("", ()) for place in places]
        try:
            ray.get(references, timeout=START_SECONDS)
        except ray.exceptions.GetTimeoutError:
            raise ClusterError(
                f"A worker of the Ray cluster had not started after {START_SECONDS:g} seconds.",
                next_step="See `ray status` and `ray logs` on the cluster's machines.",
            ) from None
        except ray.exceptions.RayTaskError as error:
            raise error.cause if isinstance(error.cause, DreamGymError) else _failed(error) from None
        except _losses(ray) as error:
            raise WorkerLost(_first_line(error)) from None
        except ray.exceptions.RayError as error:
            raise _failed(error) from None


class _Worker:
    """The actor: one process with one object."""

    def __init__(self, make: Callable[[], Any], expected: Installation, directory: str) -> None:
        import torch

        self._refusal: DreamGymError | None = None
        try:
            require_same(expected, this_installation(), platform.node())
            if Path(directory).is_dir():
                os.chdir(directory)
            torch.set_num_threads(1)
            torch.set_flush_denormal(True)
            self._object = make()
        except DreamGymError as error:  # raised by each call: Ray packs an error of this method in its own
            self._refusal = error

    def call(self, method: str, arguments: tuple[Any, ...]) -> Any:
        """Call a method of the object; without a name, return the machine and the process id."""
        if self._refusal is not None:
            raise self._refusal
        if not method:
            return platform.node(), os.getpid()
        try:
            return getattr(self._object, method)(*arguments)
        except OSError as error:
            if error.errno not in (errno.ENOSPC, errno.EDQUOT):
                raise
            raise ClusterError(
                f"The disk of the worker {platform.node()} is full: {error.filename or 'a file'} cannot be "
                "written.",
                next_step="Free some space there, then type the same again: it continues from its last "
                "checkpoint.",
            ) from None


def _losses(ray: Any) -> tuple[type[Exception], ...]:
    """Ray's errors of a process or machine that ended, perhaps after its answer and before it was fetched."""
    errors = ray.exceptions
    return errors.RayActorError, errors.ObjectLostError, errors.OutOfMemoryError, errors.NodeDiedError


def _import_ray() -> Any:
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    try:
        import ray
    except ImportError:
        raise ClusterError(
            "Ray is not installed.",
            "`cluster` needs it.",
            "make install RAY=1",
        ) from None
    return ray


def _failed(error: BaseException) -> ClusterError:
    return ClusterError(
        f"A worker of the Ray cluster failed: {_first_line(error)}",
        next_step="Type the same command again: it continues from its last checkpoint.",
    )


def _first_line(error: BaseException) -> str:
    lines = [line for line in str(error).strip().splitlines() if line.strip()]
    return lines[-1].strip() if lines else type(error).__name__
