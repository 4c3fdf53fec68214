"""A Chroma server that stops answering, or comes back without its collections, while a run uses it.

The index is derived from the replay log, so nothing is lost: the same command builds it again on the server.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from components.errors import ServiceUnreachable

AGAIN = (
    "Then type the same command again: finished stages are reused, and the index is built from the "
    "replay log."
)
_TRANSPORT = ("httpx", "httpcore")
"""Packages whose errors mean that nothing came back."""


@contextmanager
def reachable(server: str) -> Iterator[None]:
    """Calls of the server at `server` (host:port) go here; "" is the index in this process, whose errors stay
    as they are.

    Raises:
        ServiceUnreachable: it does not answer, or does not have the run's collection any more.
    """
    try:
        yield
    except Exception as error:
        if not server:
            raise
        package, name = type(error).__module__.partition(".")[0], type(error).__name__
        if package == "chromadb" and name == "NotFoundError":
            raise _emptied(server) from error
        if package in (*_TRANSPORT, "chromadb") or isinstance(error, OSError):
            raise silent(server, error) from error
        raise


def silent(server: str, error: Exception) -> ServiceUnreachable:
    """What to tell the user of a server that does not answer."""
    reason = (str(error).splitlines() or [type(error).__name__])[0]
    host, _, port = server.rpartition(":")
    start = f"Start it, for example: chroma run --host {host} --port {port} --path DIRECTORY"
    found = f"The Chroma server {server} does not answer: {reason}"
    return ServiceUnreachable(found, next_step=f"{start}; or leave retrieval.server empty. {AGAIN}")


def _emptied(server: str) -> ServiceUnreachable:
    found = (
        f"The Chroma server {server} does not have this run's collection any more: it was restarted "
        "without its data, or emptied."
    )
    return ServiceUnreachable(
        found, "Expected one server throughout a run.", f"Let it run with --path DIRECTORY. {AGAIN}"
    )
