"""From an exception to one paragraph and an exit code, whatever Prefect wrapped it in."""

from __future__ import annotations

import errno
import logging

from prefect.settings import PREFECT_API_URL
from rich.console import Console
from rich.text import Text

from components.errors import DataError, DreamGymError, TrackingError

_FULL_DATABASE = ("database or disk is full", "disk I/O error")
"""What SQLite says where a write finds no space, whatever SQLAlchemy and MLflow wrap it in."""
_NO_SERVER = ("Failed to reach API", "ephemeral Prefect API server", "ephemeral server")
_AGAIN = "Type the same command again: finished stages are reused."
_FREE_SPACE = f"Free some space. {_AGAIN}"
_START_SERVER = "Start the server that PREFECT_API_URL names, or unset it to let a server start by itself."


def expected_failure(error: BaseException) -> DreamGymError | None:
    """The failure that `error` is or was raised from; None for a real bug, which keeps its traceback."""
    seen: set[int] = set()
    link: BaseException | None = error
    while link is not None and id(link) not in seen:
        seen.add(id(link))
        if isinstance(link, DreamGymError):
            return link
        if isinstance(link, OSError) and link.errno in (errno.ENOSPC, errno.EDQUOT):
            found = f"The disk is full: {link.filename or 'a file'} cannot be written."
            return DataError(found, next_step=_FREE_SPACE)
        if any(words in str(link) for words in _FULL_DATABASE):
            found = (
                f"The disk is full, or it fails: a database cannot be written ({str(link).splitlines()[0]})."
            )
            return DataError(found, next_step=_FREE_SPACE)
        if isinstance(link, RuntimeError) and any(words in str(link) for words in _NO_SERVER):
            return TrackingError(
                f"Prefect cannot be reached: {str(link).splitlines()[0]}", next_step=_START_SERVER
            )
        if url := _lost_server(link):
            return TrackingError(
                f"Prefect's server at {url} does not answer any more: {link}.",
                next_step=f"{_START_SERVER} {_AGAIN}",
            )
        prefect_wrapped = type(link).__module__.partition(".")[0] == "prefect"
        link = link.__cause__ or (link.__context__ if prefect_wrapped else None)
    return None


def _lost_server(error: BaseException) -> str:
    """The address of Prefect's server if `error`, of its HTTP client, says that it is gone or broken; empty
    for any other failure.
    """
    api, request, response = (
        PREFECT_API_URL.value() or "",
        getattr(error, "_request", None),
        getattr(error, "response", None),
    )
    refused = response is not None and response.status_code < 500
    return api if api and request is not None and str(request.url).startswith(api) and not refused else ""


def print_failure(console: Console, failure: DreamGymError) -> None:
    """One red paragraph: what was found, what was expected, what to type next."""
    paragraph = Text(f"{type(failure).__name__}: ", style="bold red")
    paragraph.append(" ".join(part for part in (failure.found, failure.expected) if part), style="red")
    if failure.next_step:
        paragraph.append(f" Next: {failure.next_step}", style="bold red")
    console.print(paragraph, soft_wrap=True)


def hush_tracebacks() -> None:
    """Let Prefect log an expected failure as one line: its paragraph follows at the end of the command."""
    for name in (
        "prefect.flow_runs",
        "prefect.task_runs",
        "prefect.flow_engine",
        "prefect.task_engine",
        "prefect.engine",
    ):
        logging.getLogger(name).addFilter(_without_traceback)


def _without_traceback(record: logging.LogRecord) -> bool:
    error = record.exc_info[1] if isinstance(record.exc_info, tuple) else None
    if error is not None and expected_failure(error):
        record.exc_info = record.exc_text = None
    return True
