"""Errors of a Chroma server that stops answering, or returns without its collections, during a run.

The index is derived from the replay log, so nothing is lost: the same command builds it again on the server.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from components.errors import ServiceUnreachable

REPEAT_COMMAND = (
    "Then type the same command again: finished stages are reused, and the index is built from the "
    "replay log."
)
_TRANSPORT_PACKAGES = ("httpx", "httpcore")
"""Packages whose errors mean that no answer came."""


@contextmanager
def server_calls(server: str) -> Iterator[None]:
    """A block of calls of the server at `server` (host:port). "" is the index in this process, whose errors
    are raised as they are.

    Raises:
        ServiceUnreachable: the server does not answer, or no longer has the run's collection.
    """
    try:
        yield
    except Exception as error:
        if not server:
            raise
        package = type(error).__module__.partition(".")[0]
        if package == "chromadb" and type(error).__name__ == "NotFoundError":
            raise _missing_collection_error(server) from error
        if package in (*_TRANSPORT_PACKAGES, "chromadb") or isinstance(error, OSError):
            raise unreachable_error(server, error) from error
        raise


def unreachable_error(server: str, error: Exception) -> ServiceUnreachable:
    """The error for a server that does not answer, with the command that starts one."""
    reason = (str(error).splitlines() or [type(error).__name__])[0]
    host, _, port = server.rpartition(":")
    start = f"Start it, for example: chroma run --host {host} --port {port} --path DIRECTORY"
    return ServiceUnreachable(
        f"The Chroma server {server} does not answer: {reason}",
        next_step=f"{start}; or leave retrieval.server empty. {REPEAT_COMMAND}",
    )


def _missing_collection_error(server: str) -> ServiceUnreachable:
    return ServiceUnreachable(
        f"The Chroma server {server} does not have this run's collection any more: it was restarted without "
        "its data, or emptied.",
        "Expected one server throughout a run.",
        f"Let it run with --path DIRECTORY. {REPEAT_COMMAND}",
    )
