"""Checks of the machine and the workspace's directories, made before a run's first stage and by `doctor`.

They find early what would stop a run after hours.
"""

from __future__ import annotations

import os
import socket
import sys
import tempfile
from pathlib import Path

from components.errors import DataError
from components.files import require_writable
from components.trajectories.dvc.repository_state import require_working_dvc

HOST = "127.0.0.1"
OUTPUT_DIRECTORIES = ("runs", "mlflow", "data", ".dreamgym", ".dvc/tmp", ".dvc/cache")
"""Directories that a run writes to, relative to the repository; missing ones are created."""


def require_machine(root: Path, *, versions: bool = True) -> None:
    """Raise DataError for what would stop a later stage; the message says what to type.

    Args:
        versions: whether the command needs DVC and git too.
    """
    require_docstrings()
    require_temporary_files()
    for name in OUTPUT_DIRECTORIES:
        require_writable(root / name)
    if versions:
        require_working_dvc(root)


def require_docstrings() -> None:
    """Raise DataError if Python runs without docstrings: transformers reads its own during import."""
    if sys.flags.optimize > 1:
        problem = (
            f"Python runs without docstrings (PYTHONOPTIMIZE={sys.flags.optimize}); transformers cannot "
            "be imported without them."
        )
        raise DataError(problem, next_step="Type `unset PYTHONOPTIMIZE`, or set it to 1.")


def require_temporary_files() -> None:
    """Raise DataError if no temporary file can be written in TMPDIR, or anywhere if it is not set."""
    directory = os.environ.get("TMPDIR", "")
    next_step = (
        "Type `export TMPDIR=DIRECTORY` with a directory that exists, can be written and has some GB free."
    )
    if directory and not Path(directory).is_dir():
        problem = f"TMPDIR is {directory}, which is no directory."
        raise DataError(problem, "Expected a directory for temporary files.", next_step)
    try:
        with tempfile.NamedTemporaryFile(dir=directory or None) as file:
            file.write(b"\0" * 4096)
            file.flush()
    except OSError as error:
        place = f"in {directory} (TMPDIR)" if directory else "anywhere"
        raise DataError(
            f"No temporary file can be written {place}: {error.strerror or error}.", next_step=next_step
        ) from error


def port_is_free(port: int) -> bool:
    """Return True if a server could listen on `port` of this machine."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
        except OSError:
            return False
    return True
