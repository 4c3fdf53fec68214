"""Turns an exception, also one that Prefect wrapped, into a message and an exit code."""

from __future__ import annotations

import errno
import logging

from prefect.settings import PREFECT_API_URL
from rich.console import Console
from rich.text import Text

from components.errors import DataError, DreamGymError, TrackingError, TrainingError

_FULL_DATABASE = ("database or disk is full", "disk I/O error")
"""Messages of SQLite when a write finds no space; SQLAlchemy and MLflow include them in theirs."""
_NO_SERVER = ("Failed to reach API", "ephemeral Prefect API server", "ephemeral server")
_NO_GPU_MEMORY = ("CUDA out of memory", "CUDA error: out of memory", "CUBLAS_STATUS_ALLOC_FAILED")
_LOST_GPU = (
    *("unspecified launch failure", "uncorrectable ECC error", "GPU is lost", "fallen off the bus"),
    *("NCCL error", "CUDA driver error: unknown error", "CUDA error: unknown error"),
)
"""Messages of torch when a GPU computes no more. Failed asserts and illegal accesses are bugs."""
_SMALLER_BATCHES = (
    "Lower the stage's batch_tokens (experience_model, cloning, rl) or vllm.cache_gb, or set "
    "backbone.gradient_checkpointing=true, and type the command again: finished stages are reused."
)
_RETRY = "Type the same command again: finished stages are reused."
_FREE_SPACE = f"Free some space. {_RETRY}"
_START_SERVER = "Start the server that PREFECT_API_URL names, or unset it to let a server start by itself."


def expected_failure(error: BaseException) -> DreamGymError | None:
    """Return the expected failure that `error` is or was raised from; None for a bug."""
    visited: set[int] = set()
    link: BaseException | None = error
    while link is not None and id(link) not in visited:
        visited.add(id(link))
        if failure := _as_failure(link):
            return failure
        is_of_prefect = type(link).__module__.partition(".")[0] == "prefect"
        link = link.__cause__ or (link.__context__ if is_of_prefect else None)
    return None


def _as_failure(error: BaseException) -> DreamGymError | None:
    """Return `error` itself as an expected failure; None for other exceptions."""
    if isinstance(error, DreamGymError):
        return error
    if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT):
        problem = f"The disk is full: {error.filename or 'a file'} cannot be written."
        return DataError(problem, next_step=_FREE_SPACE)
    if any(words in str(error) for words in _FULL_DATABASE):
        reason = str(error).splitlines()[0]
        problem = f"The disk is full, or it fails: a database cannot be written ({reason})."
        return DataError(problem, next_step=_FREE_SPACE)
    if isinstance(error, RuntimeError) and any(words in str(error) for words in _NO_SERVER):
        problem = f"Prefect cannot be reached: {str(error).splitlines()[0]}"
        return TrackingError(problem, next_step=_START_SERVER)
    if isinstance(error, RuntimeError) and any(words in str(error) for words in _NO_GPU_MEMORY):
        problem = f"The GPU has too little memory: {str(error).splitlines()[0]}"
        return TrainingError(problem, next_step=_SMALLER_BATCHES)
    if isinstance(error, RuntimeError) and any(words in str(error) for words in _LOST_GPU):
        problem = f"The GPU computes no more: {str(error).splitlines()[0]}"
        return TrainingError(problem, next_step=f"Look at it with nvidia-smi. {_RETRY}")
    if url := _lost_server(error):
        problem = f"Prefect's server at {url} does not answer any more: {error}."
        return TrackingError(problem, next_step=f"{_START_SERVER} {_RETRY}")
    return None


def _lost_server(error: BaseException) -> str:
    """Return the address of Prefect's server if `error` of its HTTP client says that it is gone or broken.

    Empty for any other failure, also for a request that the server refused (status below 500).
    """
    api = PREFECT_API_URL.value() or ""
    request = getattr(error, "_request", None)
    response = getattr(error, "response", None)
    is_refused = response is not None and response.status_code < 500
    if not api or request is None or is_refused:
        return ""
    return api if str(request.url).startswith(api) else ""


def print_failure(console: Console, failure: DreamGymError) -> None:
    """Print one red paragraph: what is wrong, what was expected, what to type next."""
    paragraph = Text(f"{type(failure).__name__}: ", style="bold red")
    paragraph.append(" ".join(part for part in (failure.found, failure.expected) if part), style="red")
    if failure.next_step:
        paragraph.append(f" Next: {failure.next_step}", style="bold red")
    console.print(paragraph, soft_wrap=True)


def hide_expected_tracebacks() -> None:
    """Let Prefect log an expected failure as one line; the command prints its paragraph at the end."""
    for name in (
        "prefect.flow_runs",
        "prefect.task_runs",
        "prefect.flow_engine",
        "prefect.task_engine",
        "prefect.engine",
    ):
        logging.getLogger(name).addFilter(_remove_expected_traceback)


def _remove_expected_traceback(record: logging.LogRecord) -> bool:
    error = record.exc_info[1] if isinstance(record.exc_info, tuple) else None
    if error is not None and expected_failure(error):
        record.exc_info = record.exc_text = None
    return True
